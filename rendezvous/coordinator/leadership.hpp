// Until when a coordinator may lead, and what it grants its members meanwhile: no more than what is left. The coordinator asks
// before each event, and lets it answer pings. Pure.
//
// Whoever sends a stamp back promised thereby not to vote for anybody else for 1.25 leases from then on; so for one lease after
// the newest stamp that a majority has sent back nobody else can lead. Until a round is committed a majority of the round
// before is needed as well.
//
// It owns when this coordinator was elected, when it released the current round and the one before, the time that it counted
// last, and the pings that got too little, or came before the round was committed. The stamps are the peers', the rounds the
// membership's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/presence/membership.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class Leadership {
 public:
  Leadership(const CoordinatorSettings& settings, Time now)
      : self_(settings.self),
        lease_(settings.lease),
        rules_(settings.rules),
        stays_until_(now + part_of(settings.lease, settings.rules.authority)) {}

  // Answers a ping of that stamp: for how long the node's workers may run. When there is enough for workers to start, it
  // answers again those who got too little before. `founded`: false, nothing is granted, since too few have installed the first
  // round (founding.hpp).
  void answer(const Peer& peer, std::int64_t stamp, bool founded, const Membership& membership, const Peers& peers, Now now,
              Outbox& outbox);
  // The round is committed now. Its successors hear of it at once, in one more answer to a ping that could not say so, and not
  // with their next ping: were the coordinator lost before that, the round before might count as well, and of a round that has
  // grown from two nodes to three the two that are left are no majority of that one. One of them is enough (known_committed()
  // in rendezvous/node/succession.hpp).
  void committed(const std::vector<Successor>& successors, bool founded, const Membership& membership, const Peers& peers,
                 Now now, Outbox& outbox);
  // When it ends, should no other answer come; nothing: it does not end by itself.
  std::optional<Time> deadline(const Membership& membership, const Peers& peers, Time now) const;
  bool has_ended(const Membership& membership, const Peers& peers, Time now) const;

  // Rounds of two in which nobody but this node has answered lately, and whose arbiter has not voted for it: its authority ends
  // soon, unless the other one answers or the arbiter votes. Those that will be if nobody answers, and when: alone_at().
  std::vector<Config> alone_in(const Membership& membership, const Peers& peers, Time now) const;
  std::optional<Time> alone_at(const Membership& membership, const Peers& peers, Time now) const;

  // Who can be asked for a vote as part of the round hears of it after this.
  void round_released(Time now);
  // What a majority is has changed.
  void count_again() { counted_at_.reset(); }

  // Nodes counted since it was made: what the work is measured by.
  std::int64_t counted() const { return counted_; }

 private:
  std::optional<Time> alone_at(const Config& round, bool current, const Peers& peers) const;
  nanoseconds grant(const Membership& membership, const Peers& peers, Time now) const;
  void send_pong(const Peer& peer, std::int64_t stamp, bool founded, const Membership& membership, const Peers& peers, Now now,
                 Outbox& outbox) const;
  Time end(const Membership& membership, const Peers& peers, Time now) const;
  Time end_under(const Config& config, bool current, const Peers& peers, Time now) const;

  NodeId self_;
  nanoseconds lease_;
  Rules rules_;
  Time stays_until_;             // it was elected just now: without authority yet, it waits for the first answers
  Time released_at_{};           // the current round; never: it was inherited
  Time previous_released_at_{};  // the one before
  mutable Time end_{};
  mutable std::optional<Time> counted_at_;  // when end_ was found
  mutable std::int64_t counted_ = 0;
  std::map<NodeId, std::int64_t> short_answers_;     // newest pings that got too little to start workers with
  std::map<NodeId, std::int64_t> told_uncommitted_;  // newest pings whose answer did not name the current round as committed
};

}  // namespace ddprun::rendezvous
