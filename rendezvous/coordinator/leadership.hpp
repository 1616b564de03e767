// The coordinator's leader lease: until when it may lead, and how much of that time it grants its members. The coordinator
// checks it before each event, and answers pings through this class. Pure.
//
// The problem. A coordinator that is cut off cannot notice it. The other nodes elect another one, and two rounds train and
// write checkpoints at the same time. So a coordinator must know by its own clock until when no other node can lead. Clocks of
// nodes are not synchronized, their rates may differ by 10 %, and a message may take any time.
//
// The idea. The coordinator puts a stamp of its own clock into each Welcome and Pong. A member sends the newest stamp back with
// its next ping. That proves that it heard the coordinator after the stamp was made. A member does not vote for 1.25 leases
// after it last heard its coordinator. So for one lease after the newest stamp that a majority has sent back, no other node can
// lead. We count from the stamp, not from the arrival of the ping: the ping may have been on its way for seconds. The sender
// alone reads its stamps, so clocks need not agree. Their rates may differ: one lease by a slow clock is 1.111 leases, and 1.25
// leases by a fast one are 1.136 (rules.hpp).
//
// Example: a round of five, a lease of 5 s. The coordinator always hears itself. The newest stamps that the others have sent
// back are 12.0, 11.4, 9.0 and 3.0 s. A majority is three nodes: the coordinator, 12.0 and 11.4. So the lease ends at 16.4 s.
// If no newer stamp comes back, a ping at 14.0 s gets a grant of 2.4 s: the rest of the lease, and at most 0.8 leases.
//
// Until a round is committed (quorum.hpp), the lease also needs a majority of the round before. The earlier end counts.
//
// What was tried.
//   The lease under the round before was counted from stamps alone. It ended the moment that the next round began. Now a
//   release counts as a stamp: a node can vote as a part of the round only after it was released into it (authority_test.cpp).
//   A node that pinged before a majority had answered got its grant with its next ping, a second later. The node of an elected
//   coordinator was always late by that. Now such pings are answered again as soon as the grant is long enough.
//   Nodes learned only with their next ping that a round is committed. When a round had grown from two nodes to three, its
//   coordinator was lost in that time. The two others are a majority of three, but not of the two before, and the job ended.
//   Now the successors get that news at once. One of them is enough, so the other nodes still wait for their next ping.
//
// The cost. A ping and an answer for each node every 0.2 leases. A count takes one pass over all nodes. With more than 64 nodes
// the result is kept for a fiftieth of a lease. That is safe: newer stamps only extend the lease.
//
// This class owns the times of its election, of the last two releases and of the last count, and the pings that got too short a
// grant. Peers owns the stamps and each node's last ping from before the commit, Membership the rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/presence/membership.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

// The newest stamp that a node has sent back, and its group rank.
using Answer = std::pair<Time, std::int32_t>;
// Sorts the newest answers first. Only the answers around half of the votes must be in order: fewer are no majority, and more
// are not needed.
void newest_first(std::vector<Answer>& answers, const Config& round, const Rules& rules);

class Leadership {
 public:
  Leadership(const CoordinatorSettings& settings, Time now)
      : self_(settings.self),
        lease_(settings.lease),
        rules_(settings.rules),
        stays_until_(now + part_of(settings.lease, settings.rules.authority)) {}

  // Answers the ping that has this stamp with a grant: how long the node's workers may run. If that is enough to start workers,
  // also answers again the pings that got too short a grant. `founded` false: grants 0, since too few nodes have installed the
  // first round (founding.hpp).
  void answer(Peer& peer, std::int64_t stamp, bool founded, const Membership& membership, const Peers& peers, Now now,
              Outbox& outbox);
  // Leaves the ping unanswered until a call of answer() grants enough, or committed() answers it.
  void answer_later(Peer& peer, std::int64_t stamp, const Membership& membership);
  // The round is committed now. Answers the last ping of each successor again, if its first answer could not contain that. One
  // informed successor is enough (known_committed() in rendezvous/node/succession.hpp).
  void committed(const std::vector<Successor>& successors, bool founded, const Membership& membership, const Peers& peers,
                 Now now, Outbox& outbox);
  // When the lease ends if no further ping arrives. nullopt: it does not end by itself, since there is no round yet.
  std::optional<Time> deadline(const Membership& membership, const Peers& peers, Time now) const;
  bool has_ended(const Membership& membership, const Peers& peers, Time now) const;

  // Rounds of two whose other node is gone or has been silent for 0.6 leases, and whose arbiter has not voted for this node.
  // The lease ends soon, unless the other node answers or the arbiter votes. alone_at(): when the next round becomes one of
  // them if no answer comes.
  std::vector<Config> alone_in(const Membership& membership, const Peers& peers, Time now) const;
  std::optional<Time> alone_at(const Membership& membership, const Peers& peers, Time now) const;

  // Call it before the release is sent: it counts as a stamp for all nodes of the round.
  void round_released(Time now);
  // Call it after the definition of a majority has changed: it drops the cached result.
  void count_again() { counted_at_.reset(); }

  // Nodes counted so far. Tests use it to measure the work.
  std::int64_t counted() const { return counted_; }

 private:
  std::optional<Time> alone_at(const Config& round, bool current, const Peers& peers) const;
  void note_uncommitted(Peer& peer, std::int64_t stamp) const;
  nanoseconds grant(const Membership& membership, const Peers& peers, Time now) const;
  void send_pong(const Peer& peer, std::int64_t stamp, bool founded, const Membership& membership, const Peers& peers, Now now,
                 Outbox& outbox) const;
  Time end(const Membership& membership, const Peers& peers, Time now) const;
  Time end_under(const Config& config, bool current, const Peers& peers, Time now) const;

  NodeId self_;
  nanoseconds lease_;
  Rules rules_;
  Time stays_until_;             // deadline for a new coordinator to get answers of a majority
  Time released_at_{};           // the current round; Time{} if it was inherited
  Time previous_released_at_{};  // the previous round
  mutable Time end_{};
  mutable std::optional<Time> counted_at_;  // when end_ was computed
  mutable std::int64_t counted_ = 0;
  using Stamps = std::unordered_map<NodeId, std::int64_t, HashNodeId>;
  Stamps short_answers_;        // stamps of the newest pings that got too short a grant
  std::uint64_t releases_ = 1;  // incremented at each release and each commit
};

}  // namespace ddprun::rendezvous
