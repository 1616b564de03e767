// Until when the workers of a node may run: each answer of its coordinator to a ping extends that time. The member asks before
// it lets workers start or continue. Pure.
//
// This class owns that time, and whether the present coordinator has granted it.
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

  // The node follows another coordinator, or none. What was granted keeps its end.
  void lose_leader() { is_leaders_ = false; }
  void forget() { until_ = Time{}; }
  // The coordinator has answered a ping that was sent at `asked`. False: nothing changes, since the present grant ends later,
  // or since workers run under an earlier coordinator's grant.
  bool extend(Time asked, nanoseconds length, bool has_workers) {
    if (!is_leaders_ && has_workers) return false;
    if (is_leaders_ && asked + length <= until_) return false;
    until_ = asked + length;
    is_leaders_ = true;
    return true;
  }

 private:
  Time until_{};
  bool is_leaders_ = false;  // granted by the present coordinator
};

}  // namespace ddprun::rendezvous
