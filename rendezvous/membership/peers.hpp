// The nodes of the job, as the coordinator has recorded them. For each node it stores the link, the time of the last message,
// and whether the node is ready for a round. The coordinator and the classes that it uses look up nodes in this class. The
// code is pure: no I/O, no clock.
//
// This class owns the table of nodes, their links, the order of their last messages, and which node has requested which rank.
// It also owns the two counts on which the start of a round depends: the ready nodes, and the nodes whose workers must still
// end.
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

// A node of the job. A connected node has a link and has got a Welcome. A lost node stays in the table while it counts for the
// majority of a round.
struct Peer {
  Hello hello;
  std::optional<LinkId> link;
  std::uint64_t order = 0;  // order of joining: a node that joins later has a greater value
  bool welcome = false;
  bool ready = false;
  bool ready_once_confirmed = false;
  bool in_round = false;  // true if the node has a rank in the current round and is connected
  bool done = false;      // true if the node's workers have finished the current round
  bool departed = false;
  std::int32_t rank = -1;               // group rank (rank of the node) in the current round; -1 if the node has no rank
  std::int32_t previous_rank = -1;      // group rank (rank of the node) in the previous round; -1 if the node had no rank
  bool installed = false;               // true if the node has recorded the current round on disk
  RoundId pending_ready{};              // the round whose workers are still running on the node
  bool awaited = false;                 // true if the coordinator waits until the node's workers have ended
  std::optional<Time> awaited_since{};  // when the coordinator started to wait for the workers; kept if the node reconnects
  // true if the coordinator no longer waits for the workers, because they did not end in time
  bool is_late = false;
  std::uint16_t master_port = 0;
  std::int64_t answered = 0;  // the newest of this coordinator's timestamps (stamps) that the node has returned
  // stamp in the newest ping that the coordinator answered before the current round was committed
  std::int64_t unconfirmed_ping = 0;
  std::uint64_t unconfirmed_release = 0;  // value of LeaderLease::releases_ when that ping (unconfirmed_ping) arrived
  Time last_contact{};
  std::list<Peer*>::iterator age{};

  bool connected() const { return link.has_value() && welcome; }
};

class Peers {
 public:
  using Table = std::unordered_map<NodeId, Peer, HashNodeId>;

  // ---- lookups ----
  Table& all() { return peers_; }
  const Table& all() const { return peers_; }
  Peer* find(const NodeId& id);
  const Peer* find(const NodeId& id) const { return const_cast<Peers*>(this)->find(id); }
  Peer& at(const NodeId& id) { return peers_.at(id); }
  const Peer& at(const NodeId& id) const { return peers_.at(id); }
  Peer* by_link(LinkId link);
  // Returns the nodes with a link, sorted by the time of their last message, oldest first.
  const std::list<Peer*>& by_age() const { return by_age_; }
  std::int64_t connected() const { return std::ssize(by_age_); }
  // Returns the oldest `last_contact` of all nodes with a link; nullopt if no node has a link.
  std::optional<Time> oldest_contact() const;
  bool knows(const Address& address) const;
  // Returns the connected node that was first to request this group rank; nullptr if no node has requested it.
  const NodeId* holder_of(std::int32_t wanted_rank) const;
  // Returns the nodes of `ids` that are connected and have a rank in the current round. Keeps the order of `ids`.
  std::vector<Peer*> in_round(const std::vector<NodeId>& ids);
  // Returns the connected nodes of the current round, sorted by rank. An earlier coordinator may have started that round.
  std::vector<Peer*> round_members();

  // ---- arrivals and lost nodes ----
  //
  // Returns the node with that id. Adds the node if it is unknown.
  Peer& get_or_add(const NodeId& id) { return peers_[id]; }
  void connect(Peer& peer, LinkId link, const Hello& hello, Time now);
  void receive(Peer& peer, Time now);
  // Removes the node's link, but keeps the node in the table.
  void disconnect(Peer& peer);
  void forget(const NodeId& id) { peers_.erase(id); }  // call this only for a node without a link
  // Removes all nodes that have neither a link nor a rank in the current round.
  void forget_unranked();
  // Keeps the older connection of the node valid. Only a test that turns off the rule later_process_replaces calls this.
  void keep_counting(Peer& peer);

  // ---- ready ----
  void set_ready(Peer& peer, bool ready);
  std::int64_t ready() const { return ready_; }
  // Call this if the node's Hello reports that the node is ready. The Hello may have been delayed, and the process may have
  // ended in the meantime. So the node counts as ready only after it has answered its Welcome. Call take_confirmed() for each
  // answer. It returns true for the first answer.
  void set_ready_once_confirmed(Peer& peer);
  bool take_confirmed(Peer& peer);
  std::int64_t unconfirmed() const { return unconfirmed_; }
  // Makes the coordinator wait until the node reports that its workers of `round` have ended.
  void await_workers(Peer& peer, const RoundId& round, Time now);
  bool awaits(const NodeId& id) const {
    const Peer* const peer = find(id);
    return peer != nullptr && peer->awaited;
  }
  // Call this when the node's workers of `round` have ended. Returns false if the coordinator was not waiting for them and the
  // node was not late.
  bool workers_gone(Peer& peer, const RoundId& round);
  std::size_t awaited() const { return awaited_; }
  // Counts nodes whose workers are still running as ready. Only a test that turns off the rule wait_for_ready calls this.
  void stop_awaiting_all();

 private:
  bool stop_awaiting(Peer& peer);  // returns false if the coordinator was not waiting for the node's workers

  Table peers_;
  std::unordered_map<LinkId, Peer*> links_;  // The pointers stay valid, because an unordered_map does not move its elements.
  std::list<Peer*> by_age_;
  std::unordered_map<std::int32_t, NodeId> rank_holders_;  // from a requested group rank to the node that gets it
  std::int64_t ready_ = 0;
  std::int64_t unconfirmed_ = 0;
  std::size_t awaited_ = 0;
  std::uint64_t next_order_ = 0;
};

}  // namespace ddprun::rendezvous
