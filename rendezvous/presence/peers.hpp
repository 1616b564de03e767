// The nodes that a coordinator knows: which are connected and over which link, how long each was silent, and whether it is
// ready for a round. The coordinator and its parts look nodes up here; only the coordinator adds and removes them. Pure.
//
// This class owns the table of nodes, their links, the order in which they were last heard, and the holder of each requested
// rank. It also owns the two counts that a round waits for: nodes that are ready, and nodes whose workers still have to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

using NodeIds = std::unordered_set<NodeId, HashNodeId>;

// A node. Either it is connected (it has a link and was welcomed), or it is gone and a round's majority still counts it.
struct Peer {
  Hello hello;
  std::optional<LinkId> link;
  std::uint64_t order = 0;  // the order in which nodes joined
  bool welcome = false;
  bool ready = false;
  bool ready_once_heard = false;
  bool in_round = false;  // it has a rank in the current round, and was not lost since the start
  bool done = false;      // its workers have finished the current round
  bool departed = false;
  std::int32_t rank = -1;               // in the current round
  std::int32_t previous_rank = -1;      // in the previous round
  bool installed = false;               // it has installed the current round
  RoundId owes_ready{};                 // the round of the workers that it still has
  bool awaited = false;                 // its workers still have to end
  std::optional<Time> awaited_since{};  // start of the wait; a node that was away in between keeps the earlier time
  bool straggles = false;               // its workers did not end in time, so the coordinator no longer waits for them
  std::uint16_t master_port = 0;
  std::int64_t answered = 0;              // the newest stamp of this coordinator that it sent back
  std::int64_t unconfirmed_ping = 0;      // its newest ping whose answer did not name the current round as committed,
  std::uint64_t unconfirmed_release = 0;  // and the release that was current then, as Leadership counts them
  Time heard{};
  std::list<Peer*>::iterator age{};

  bool here() const { return link.has_value() && welcome; }
};

class Peers {
 public:
  using Table = std::unordered_map<NodeId, Peer, HashNodeId>;

  // ---- looking up ----
  Table& all() { return peers_; }
  const Table& all() const { return peers_; }
  Peer* find(const NodeId& id);
  const Peer* find(const NodeId& id) const { return const_cast<Peers*>(this)->find(id); }
  Peer& at(const NodeId& id) { return peers_.at(id); }
  const Peer& at(const NodeId& id) const { return peers_.at(id); }
  Peer* behind(LinkId link);
  // Nodes with a link; the one with the longest silence comes first.
  const std::list<Peer*>& by_age() const { return by_age_; }
  std::int64_t connected() const { return std::ssize(by_age_); }
  // The time of the last message from the node with the longest silence; nullopt if no node has a link.
  std::optional<Time> oldest_word() const;
  bool knows(const Address& address) const;
  // The first node that requested this group rank, if it is still connected; nullptr if there is none.
  const NodeId* holder_of(std::int32_t wanted_rank) const;
  // Those of `ids` that are connected and in the current round, in that order.
  std::vector<Peer*> in_round(const std::vector<NodeId>& ids);
  // Connected nodes of the current round, which may be inherited, in the order of their ranks.
  std::vector<Peer*> of_round();

  // ---- coming and going ----
  // The node of that identity; adds an unknown one.
  Peer& know(const NodeId& id) { return peers_[id]; }
  void connect(Peer& peer, LinkId link, const Hello& hello, Time now);
  void hear(Peer& peer, Time now);
  // The node stays in the table, without a link.
  void disconnect(Peer& peer);
  void forget(const NodeId& id) { peers_.erase(id); }  // without a link, so it is not awaited either
  // Removes the nodes without a link that are not in the current round.
  void forget_bystanders();
  // For a test that breaks rule later_process_replaces: the older connection still counts.
  void keep_counting(Peer& peer);

  // ---- ready ----
  void set_ready(Peer& peer, bool ready);
  std::int64_t ready() const { return ready_; }
  // The node reports that it is ready, but its process may be gone since. Its Hello may have been delayed, or came over a
  // connection that was replaced by another one. So the node counts only after it has answered its Welcome. take_heard()
  // returns true when that happens.
  void set_ready_once_heard(Peer& peer);
  bool take_heard(Peer& peer);
  std::int64_t unheard() const { return unheard_; }
  // The node has workers of that round until it reports that they are gone.
  void await_workers(Peer& peer, const RoundId& round, Time now);
  bool awaits(const NodeId& id) const {
    const Peer* const peer = find(id);
    return peer != nullptr && peer->awaited;
  }
  // False if the workers of that round were neither awaited nor late.
  bool workers_gone(Peer& peer, const RoundId& round);
  std::size_t awaited() const { return awaited_; }
  // For a test that breaks rule wait_for_ready: nodes whose workers still run count as ready.
  void await_nobody();

 private:
  bool await_no_more(Peer& peer);  // false: the node was not awaited

  Table peers_;
  std::unordered_map<LinkId, Peer*> links_;  // an element of an unordered_map keeps its address
  std::list<Peer*> by_age_;
  std::unordered_map<std::int32_t, NodeId> rank_holders_;  // by requested group rank
  std::int64_t ready_ = 0;
  std::int64_t unheard_ = 0;
  std::size_t awaited_ = 0;
  std::uint64_t next_order_ = 0;
};

}  // namespace ddprun::rendezvous
