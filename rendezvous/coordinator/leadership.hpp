// The coordinator's lease: until when it may lead, and how much of that time it grants its members. The coordinator asks before
// each event, and lets this class answer pings. Pure.
//
// A member that sends a stamp back promises not to vote for another candidate for 1.25 leases from then on. So for one lease
// after the newest stamp that a majority has sent back, no other node can lead. Until a round is committed, this also takes a
// majority of the round before.
//
// This class owns when this coordinator was elected, when it released the current round and the one before, when it last
// counted, and the pings that got too short a grant, or came before the round was committed. The stamps are the peers', the
// rounds the membership's.
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

// The newest stamp that a node has answered, and its group rank.
using Answer = std::pair<Time, std::int32_t>;
// Sorts by time, the newest first. Among so many answers that they could not be enough, it leaves the order open.
void newest_first(std::vector<Answer>& answers, const Config& round, const Rules& rules);

class Leadership {
 public:
  Leadership(const CoordinatorSettings& settings, Time now)
      : self_(settings.self),
        lease_(settings.lease),
        rules_(settings.rules),
        stays_until_(now + part_of(settings.lease, settings.rules.authority)) {}

  // Answers a ping with that stamp: how long the node's workers may run. When that is enough for workers to start, it also
  // answers again those nodes that got too little before. `founded` false: nothing is granted, since too few nodes have
  // installed the first round (founding.hpp).
  void answer(Peer& peer, std::int64_t stamp, bool founded, const Membership& membership, const Peers& peers, Now now,
              Outbox& outbox);
  // The answer comes with the next call of answer() that grants enough, or with the news that the round is committed.
  void answer_later(Peer& peer, std::int64_t stamp, const Membership& membership);
  // The round is committed now. Its successors hear of it at once, in one more answer to a ping whose first answer could not
  // say so. Their next ping may be too late: if the coordinator were lost before it, the round before might still count as
  // well. When a round has grown from two nodes to three, the two nodes that are left are no majority of that round. One
  // informed successor is enough (known_committed() in rendezvous/node/succession.hpp).
  void committed(const std::vector<Successor>& successors, bool founded, const Membership& membership, const Peers& peers,
                 Now now, Outbox& outbox);
  // When it ends if no other answer comes; nothing: it does not end by itself.
  std::optional<Time> deadline(const Membership& membership, const Peers& peers, Time now) const;
  bool has_ended(const Membership& membership, const Peers& peers, Time now) const;

  // Rounds of two in which only this node has answered lately, and whose arbiter has not voted for it: its authority ends soon,
  // unless the other node answers or the arbiter votes. alone_at() says when a round will be one of them if no answer comes.
  std::vector<Config> alone_in(const Membership& membership, const Peers& peers, Time now) const;
  std::optional<Time> alone_at(const Membership& membership, const Peers& peers, Time now) const;

  // Nodes that can be asked for a vote as part of the round learn of the round after this call.
  void round_released(Time now);
  // The definition of the majority has changed.
  void count_again() { counted_at_.reset(); }

  // How many nodes were counted until now: tests measure the work by it.
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
  Time stays_until_;             // it has just been elected: it waits for the first answers, without authority yet
  Time released_at_{};           // the current round; never: it was inherited
  Time previous_released_at_{};  // the round before
  mutable Time end_{};
  mutable std::optional<Time> counted_at_;  // when end_ was computed
  mutable std::int64_t counted_ = 0;
  using Stamps = std::unordered_map<NodeId, std::int64_t, HashNodeId>;
  Stamps short_answers_;        // the newest pings whose answer was too short to start workers
  std::uint64_t releases_ = 1;  // counts the rounds that were released, and each that is committed
};

}  // namespace ddprun::rendezvous
