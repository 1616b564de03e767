// Until when the workers of a node may run: each answer of its coordinator to a ping extends it. The member asks before it lets
// workers start or go on. Pure.
//
// It owns that time, and whether the coordinator of now has granted it.
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

  // Another coordinator, or none: what was granted ends when it said.
  void lose_leader() { is_leaders_ = false; }
  void forget() { until_ = Time{}; }
  // Granted to who asked at that time. False: it changes nothing, since there was more already, or since workers run under what
  // an earlier coordinator granted.
  bool extend(Time asked, nanoseconds length, bool has_workers) {
    if (!is_leaders_ && has_workers) return false;
    if (is_leaders_ && asked + length <= until_) return false;
    until_ = asked + length;
    is_leaders_ = true;
    return true;
  }

 private:
  Time until_{};
  bool is_leaders_ = false;  // not of an earlier coordinator
};

}  // namespace ddprun::rendezvous
