// The first round of a coordinator that nobody elected, where a job of the same name may be running already. It is released
// only when so many nodes answer that no other round can run without them, and workers get no grant before as many have
// installed it: from then on none of them can be part of another. The coordinator asks before its first rounds. Pure.
//
// It owns whether the job is founded; from then on, and for who was elected, it asks for nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class Founding {
 public:
  Founding(const CoordinatorSettings& settings, const FirstRound& first)
      : self_(settings.self), lease_(settings.lease), first_(first), done_(first.nodes == 0) {}

  bool done() const { return done_; }
  // A node has sent back a stamp of this coordinator's.
  void answered() { --answers_missing_; }
  // Whether a round may be released; if not, it says what for it waits.
  bool may_release(const Peers& peers, Time now, Outbox& outbox);
  // A node has installed the round.
  void installed(const Peers& peers);
  // When it may release without anything else happening.
  std::optional<Time> next_deadline() const { return done_ ? std::nullopt : first_.alone_after; }
  // By how much a term is to be later than one that was promised to another job's coordinator.
  std::uint64_t term_apart() const { return (std::uint64_t{1} << 16U) + (std::uint64_t{self_[2]} << 8U) + self_[3]; }
  // For people, when nobody else came; empty when that was not the reason.
  std::string why(const Peers& peers) const;

 private:
  NodeId self_;
  nanoseconds lease_;
  FirstRound first_;
  bool done_;
  // Counting is a pass over all nodes. Of many it is done again only after as many words as were missing: each adds one at
  // most.
  std::int64_t answers_missing_ = 0;
  std::int64_t installs_missing_ = 0;
};

}  // namespace ddprun::rendezvous
