// Manages the worker lease, which is the time until which the workers of a node may run. Each Pong of the coordinator extends
// the lease by a grant. If no further grant arrives, the member stops the workers at the end of the lease, because another
// coordinator may then start a round without this node. The member also checks the lease before it starts workers. The code is
// pure: no I/O, no clock.
//
// This class owns the end of the lease, and a flag that is true if the current coordinator has granted this end.
#pragma once

#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class WorkerLease {
 public:
  Time until() const { return until_; }
  bool exists() const { return until_ != Time{}; }
  bool is_leaders() const { return is_leaders_; }
  bool is_over(Time now) const { return until_ <= now; }

  // Call this when the node has lost its coordinator or follows a new one. The time that was already granted stays valid.
  void lose_leader() { is_leaders_ = false; }
  void forget() { until_ = Time{}; }
  // Applies a grant of the coordinator: the workers may run for `length` from `sent_at`, the time of the ping. Returns false
  // if the grant changes nothing, because the lease already ends later, or because workers run under a grant of an earlier
  // coordinator.
  bool extend(Time sent_at, nanoseconds length, bool has_workers) {
    if (!is_leaders_ && has_workers) return false;
    if (is_leaders_ && sent_at + length <= until_) return false;
    until_ = sent_at + length;
    is_leaders_ = true;
    return true;
  }

 private:
  Time until_{};
  bool is_leaders_ = false;  // true if the current coordinator has granted `until_`
};

}  // namespace ddprun::rendezvous
