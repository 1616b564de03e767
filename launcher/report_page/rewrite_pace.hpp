// Decides when `ddprun report --follow` rewrites its page (report_follower.hpp). A change of the run's files causes a rewrite,
// but at most one in kMinInterval: a job may write hundreds of steps per second. Some changes cause no event: changes of the
// workers' memory and GPU usage, and writes of another machine to a network file system. So the page is rewritten at least
// once in kMaxInterval. The code is pure: no I/O, no clock.
#pragma once

#include <algorithm>
#include <chrono>

namespace ddprun {

class RewritePace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kMinInterval{2};
  static constexpr std::chrono::seconds kMaxInterval{5};

  void written(Clock::time_point now) {
    written_ = now;
    changed_ = false;
  }
  void changed() { changed_ = true; }
  // Returns true if the files have changed since the last rewrite. Further changes do not delay the next rewrite, so the caller
  // need not watch for them.
  bool has_changed() const { return changed_; }
  // Returns the time until the next rewrite; 0 means now.
  std::chrono::milliseconds remaining(Clock::time_point now) const {
    const auto next = written_ + (changed_ ? kMinInterval : kMaxInterval);
    return std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(next - now));
  }

 private:
  Clock::time_point written_{};
  bool changed_ = false;
};

}  // namespace ddprun
