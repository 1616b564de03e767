// Computes the leader lease, which is the time until which a coordinator may lead, and how much of that time it grants to its
// members. The coordinator checks the lease before each event, and answers pings through this class. The code is pure: no I/O,
// no clock.
//
// The problem. A coordinator cannot detect immediately that it is cut off from the other nodes. If the other nodes elect a new
// coordinator meanwhile, two sets of workers train and write checkpoints at the same time. So a coordinator must know, by its
// own clock, until when no other node can lead. Clocks of nodes are not synchronized, their rates may differ by 10 %, and a
// message may be delayed by any time.
//
// The idea. The coordinator puts a stamp of its clock into each Welcome and Pong. A member sends the newest stamp back with
// its next ping. A stamp that comes back proves that the member received a message of the coordinator after the time of the
// stamp. A member does not vote until 1.25 leases have passed since the last message of its coordinator. So for one lease
// after the newest stamp that a majority has sent back, no other node can lead. We count from the stamp and not from the
// arrival of the ping, because the ping may have been delayed for seconds. Only the sender reads its stamps, so the clocks
// need not agree. Their rates may differ by 10 % (rules.hpp). One lease on a slow clock takes 1.111 leases of true time. On a
// fast clock, 1.25 leases take 1.136 leases of true time. So the coordinator's lease always ends first.
//
// Example: a round of five nodes, with a lease of 5 s. The coordinator counts as a node that answers at the current time. The
// newest stamps that the other nodes have sent back are 12.0, 11.4, 9.0 and 3.0 s. A majority is three nodes: the coordinator,
// and the nodes with 12.0 and 11.4 s. So the lease ends at 11.4 + 5 = 16.4 s. A grant is the time for which a member's workers
// may run. A grant is the remaining time of the lease, but at most 0.8 leases. If no newer stamp comes back, a ping at 14.0 s
// gets a grant of 2.4 s.
//
// Until a round is committed (quorum.hpp), the lease also needs a majority of the previous round. Each majority gives an end
// time, and the lease ends at the earlier of the two times.
//
// Alternatives tried.
//   1. The lease was computed from stamps alone. The lease under the previous round then ended at the moment when the next
//      round started. Now a release counts as a stamp too, because a node votes as a member of a round only after it has
//      received the release (authority_test.cpp).
//   2. If a ping arrived before a majority had answered, its node got a grant only with the next ping, a second later. This
//      delay always affected the node of an elected coordinator. Now the coordinator answers these pings again as soon as the
//      grant is long enough.
//   3. Only the answer to the next ping of a node contained the information that the round is committed. In one case a round
//      had grown from two nodes to three, and the coordinator was lost before those pings. The two other nodes are a majority
//      of the three, but not of the previous two nodes, so the job ended. Now the successors (the candidates of the next
//      election) are informed immediately. One informed node is enough, so the other nodes still get this information with
//      their next ping.
//
// The cost. Each node sends a ping every 0.2 leases and gets an answer. A count of the stamps takes one pass over all nodes.
// With more than 64 nodes the result is cached for a fiftieth of a lease. The cache is safe, because newer stamps only extend
// the lease.
//
// This class owns the times of the election, of the last two releases, and of the last count. It also owns the stamps of the
// pings whose grant was too short to start workers. Peers owns the stamps, and each node's newest ping before the commit.
// Membership owns the rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/coordinator/bootstrap.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

// The time of the newest stamp that a node has sent back, and the node's group rank.
using Answer = std::pair<Time, std::int32_t>;
// Sorts the answers, newest first. The order is exact only around the middle, because one of the middle answers completes the
// majority.
void newest_first(std::vector<Answer>& answers, const Config& round, const Rules& rules);

class LeaderLease {
 public:
  LeaderLease(const CoordinatorSettings& settings, const Bootstrap& bootstrap, const Membership& membership, const Peers& peers,
              Time now)
      : bootstrap_(bootstrap),
        membership_(membership),
        peers_(peers),
        settings_(settings),
        stays_until_(now + part_of(settings.lease, settings.rules.authority)) {}

  // Answers the ping with this stamp. The answer contains a grant: the time for which the node's workers may run. If the grant
  // is long enough to start workers, the earlier pings with a shorter grant are answered again. During the bootstrap (too few
  // nodes have installed the first round) the grant is 0.
  void answer(Peer& peer, std::int64_t stamp, Now now, Outbox& outbox);
  // Defers the answer to this ping. The answer is sent by the next call to answer() whose grant is long enough, or by
  // committed().
  void answer_later(Peer& peer, std::int64_t stamp);
  // Call this when the round is committed. Sends each successor a second answer to its last ping, if the first answer did not
  // report the commit. For an election it is enough that one successor has this information (known_committed() in
  // rendezvous/node/leader_election.hpp).
  void committed(const std::vector<Successor>& successors, Now now, Outbox& outbox);
  // Returns the time at which the lease ends if no further ping arrives. Returns nullopt if there is no round yet, because the
  // lease then does not end.
  std::optional<Time> deadline(Time now) const;
  bool has_ended(Time now) const;

  // alone_in() returns the two-node rounds in which this node is alone. A node is alone if the other node is lost or has been
  // silent for 0.6 leases, and the arbiter has not voted for this node. The lease then ends soon, unless the other node answers
  // or the arbiter votes. alone_at() returns the time at which this node becomes alone in another round if no message arrives;
  // nullopt if that cannot happen now.
  std::vector<Config> alone_in(Time now) const;
  std::optional<Time> alone_at(Time now) const;

  // Call this before a release is sent. The time of the release counts as a stamp that all nodes of the round have sent back.
  void round_released(Time now);
  // Drops the cached end of the lease. Call this when the set of votes that form a majority has changed.
  void count_again() { counted_at_.reset(); }

  // Returns the total number of node visits in all computations so far. Tests use it to measure the work.
  std::int64_t counted() const { return counted_; }

 private:
  std::optional<Time> alone_at(const Config& round, bool current) const;
  void note_uncommitted(Peer& peer, std::int64_t stamp) const;
  nanoseconds grant(Time now) const;
  void send_pong(const Peer& peer, std::int64_t stamp, Now now, Outbox& outbox) const;
  Time end(Time now) const;
  Time end_under(const Config& config, bool current, Time now) const;

  const Bootstrap& bootstrap_;
  const Membership& membership_;
  const Peers& peers_;
  const CoordinatorSettings& settings_;
  Time stays_until_;             // until this time, a newly elected coordinator leads even if no majority has answered
  Time released_at_{};           // when the current round was released; Time{} if an earlier coordinator released it
  Time previous_released_at_{};  // when the previous round was released
  mutable Time end_{};
  mutable std::optional<Time> counted_at_;  // when end_ was computed; nullopt: compute it again
  mutable std::int64_t counted_ = 0;
  using Stamps = std::unordered_map<NodeId, std::int64_t, HashNodeId>;
  Stamps short_answers_;        // for each node whose last grant was too short to start workers: the stamp of its newest ping
  std::uint64_t releases_ = 1;  // incremented at each release of a round and at each commit of a round
};

}  // namespace ddprun::rendezvous
