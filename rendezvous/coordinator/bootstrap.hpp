// Decides when a coordinator that was not elected may start its first round (one start of all workers). The coordinator calls
// this class before its first rounds. The code is pure: no I/O, no clock.
//
// The problem. A job of the same name may already be running on nodes that this coordinator cannot reach, for example after a
// network failure. If the coordinator started a round, two rounds of one job would run at the same time.
//
// The idea. A round is released only when enough nodes have answered. The nodes that have not answered are then too few for
// another round. But a node that has answered may still join another round. So no worker may run before the same number of
// nodes has also installed this round (recorded it on disk). From then on, none of these nodes can be in another round.
//
// The bootstrap is complete when enough nodes have installed the first round. After that, every round is allowed. For an
// elected coordinator the bootstrap is complete from the start.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class Bootstrap {
 public:
  Bootstrap(const CoordinatorSettings& settings, const FirstRound& first)
      : settings_(settings), first_(first), done_(first.nodes == 0) {}

  bool done() const { return done_; }
  // Call this whenever a node has returned a timestamp of this coordinator, which proves that the node is alive
  // (leader_lease.hpp).
  void answered() { --answers_missing_; }
  // Returns true if the coordinator may start a round. If it may not, appends a notice with the reason to `outbox`.
  bool may_release(const Peers& peers, Time now, Outbox& outbox);
  // Call this when a node has installed the round, or has left the job.
  void installed(const Peers& peers);
  // Returns the time after which a round may start without answers from other nodes. Returns nullopt if answers are always
  // needed, or if the bootstrap is complete.
  std::optional<Time> next_deadline() const { return done_ ? std::nullopt : first_.alone_after; }
  // Returns the increment for the coordinator's term when a joining node has promised a later term: new term = that term +
  // increment. The increment depends on the node id. So if two coordinators increase their terms at the same time, their new
  // terms differ.
  std::uint64_t term_apart() const {
    return (std::uint64_t{1} << 16U) + (std::uint64_t{settings_.self[2]} << 8U) + settings_.self[3];
  }
  // Describes why the first round cannot start yet, for messages. Returns an empty text if the bootstrap is complete.
  std::string why(const Peers& peers) const;

 private:
  const CoordinatorSettings& settings_;
  FirstRound first_;
  bool done_;
  // Number of answers that must arrive before the nodes are counted again. Each count takes one pass over all nodes. Each
  // message adds at most one answer, so a count before that number of answers could not reach a majority.
  std::int64_t answers_missing_ = 0;
  std::int64_t installs_missing_ = 0;
};

}  // namespace ddprun::rendezvous
