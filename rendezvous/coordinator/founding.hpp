// Guards the first round of a coordinator that was not elected, because a job of the same name may be running already. It may
// be released only when so many nodes answer that no other round can run without them. Workers get no grant before as many
// nodes have installed it: from then on none of them can be in another round. The coordinator checks this before its first
// rounds. Pure.
//
// This class owns whether the job is founded. After that, and for an elected coordinator, it agrees to every round.
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
  // A node has answered a ping of this coordinator (leadership.hpp: stamps).
  void answered() { --answers_missing_; }
  // True if a round may be released. Otherwise it reports the reason to `outbox`.
  bool may_release(const Peers& peers, Time now, Outbox& outbox);
  // A node has installed the round.
  void installed(const Peers& peers);
  // The time at which a round may be released without any further event.
  std::optional<Time> next_deadline() const { return done_ ? std::nullopt : first_.alone_after; }
  // The distance between this node's first term and a term that it promised to the coordinator of another job. It depends on
  // the node's id, so that two nodes that do this at the same time choose different terms.
  std::uint64_t term_apart() const { return (std::uint64_t{1} << 16U) + (std::uint64_t{self_[2]} << 8U) + self_[3]; }
  // A message for the case that no other node joined; empty if there is another reason.
  std::string why(const Peers& peers) const;

 private:
  NodeId self_;
  nanoseconds lease_;
  FirstRound first_;
  bool done_;
  // Counting takes one pass over all nodes. With many nodes it is repeated only after as many messages as answers were missing,
  // since each message adds one answer at most.
  std::int64_t answers_missing_ = 0;
  std::int64_t installs_missing_ = 0;
};

}  // namespace ddprun::rendezvous
