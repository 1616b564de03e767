// The nodes that a coordinator knows: which are connected and over which link, how long each was silent, and whether it is
// ready for a round. The coordinator and its parts look nodes up here; only the coordinator lets them come and go. Pure.
//
// This class owns the table of nodes, the links that lead to them, the order in which they were last heard, who holds which
// wanted rank, and the two counts that a round waits for: nodes that are ready, and nodes whose workers still have to end.
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

// A node: it is here (it has a link and was welcomed), or it is gone and a round's majority still counts it.
struct Peer {
  Hello hello;
  std::optional<LinkId> link;
  std::uint64_t order = 0;  // the order in which nodes joined
  bool welcome = false;
  bool ready = false;
  bool ready_once_heard = false;
  bool in_round = false;  // it has a rank in the current round, and was not lost since
  bool done = false;      // its workers have finished the current round
  bool departed = false;
  std::int32_t rank = -1;               // in the current round
  std::int32_t previous_rank = -1;      // in the round before
  bool installed = false;               // it has installed the current round
  RoundId owes_ready{};                 // the round whose workers it still has
  bool awaited = false;                 // its workers still have to end
  std::optional<Time> awaited_since{};  // since when we wait for them; a node that was away in between keeps the earlier time
  bool straggles = false;               // its workers did not end in time, so the coordinator waits for them no more
  std::uint16_t master_port = 0;
  std::int64_t answered = 0;              // the newest stamp of ours that it sent back
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
  // The nodes with a link; the one that was silent the longest comes first.
  const std::list<Peer*>& by_age() const { return by_age_; }
  std::int64_t connected() const { return std::ssize(by_age_); }
  // When the node that was silent the longest was last heard; nothing when no node has a link.
  std::optional<Time> oldest_word() const;
  bool knows(const Address& address) const;
  // The first node that said it wants this group rank, if it is still here; nullptr: nobody.
  const NodeId* holder_of(std::int32_t wanted_rank) const;
  // Those of `ids` that are here and in the current round, in that order.
  std::vector<Peer*> in_round(const std::vector<NodeId>& ids);
  // The nodes that are here and in the current round, which may be inherited, in the order of their ranks.
  std::vector<Peer*> of_round();

  // ---- coming and going ----
  // The node of that identity. An unknown one is added.
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
  // The node says that it is ready, but its process may be gone since: its Hello was late on its way, or came over a connection
  // that was given up for another one. So it counts once it has answered its Welcome. True: that was now.
  void set_ready_once_heard(Peer& peer);
  bool take_heard(Peer& peer);
  std::int64_t unheard() const { return unheard_; }
  // The node has workers of that round until it says that they are gone.
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
  bool await_no_more(Peer& peer);  // false: nobody did

  Table peers_;
  std::unordered_map<LinkId, Peer*> links_;  // a node of that table stays where it is
  std::list<Peer*> by_age_;
  std::unordered_map<std::int32_t, NodeId> rank_holders_;  // by wanted group rank
  std::int64_t ready_ = 0;
  std::int64_t unheard_ = 0;
  std::size_t awaited_ = 0;
  std::uint64_t next_order_ = 0;
};

}  // namespace ddprun::rendezvous
