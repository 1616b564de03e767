// The time until which the workers of a node may run. Each answer of the coordinator to a ping extends it. The member checks it
// before workers start or continue. Pure.
//
// This class owns that time, and whether the current coordinator has granted it.
#pragma once

#include <algorithm>
#include <optional>

#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class Grant {
 public:
  Time until() const { return until_; }
  bool exists() const { return until_ != Time{}; }
  bool is_leaders() const { return is_leaders_; }
  bool is_over(Time now) const { return until_ <= now; }

  // The node has no coordinator now, or will follow another one. The granted time keeps its end.
  void lose_leader() { is_leaders_ = false; }
  void forget() { until_ = Time{}; }
  // The coordinator has answered a ping that was sent at `asked`. Returns false if nothing changes, because the current grant
  // ends later, or because workers run under an earlier coordinator's grant.
  bool extend(Time asked, nanoseconds length, bool has_workers) {
    if (!is_leaders_ && has_workers) return false;
    if (is_leaders_ && asked + length <= until_) return false;
    until_ = asked + length;
    is_leaders_ = true;
    return true;
  }

 private:
  Time until_{};
  bool is_leaders_ = false;  // granted by the current coordinator
};

}  // namespace ddprun::rendezvous
