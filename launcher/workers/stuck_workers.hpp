// Workers that wait in the kernel and cannot be interrupted (state D: a dead network file system, a wedged GPU driver): for how
// long, as of now. TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT names the time after which one counts as lost. Pure but for
// process_state(), which looks into /proc; launcher/workers/stuck_look.hpp asks only while that variable is set.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string_view>

namespace ddprun {

// "R", "S", "D", ...; 0: no such process.
char process_state(long pid);

// Reads seconds as torchrun does. Zero (never look) when the variable is unset, not a number or negative.
std::chrono::milliseconds stuck_timeout_of(const std::optional<std::string_view>& text);

class StuckWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StuckWatch(std::chrono::milliseconds limit) : limit_(limit) {}
  // True once: when the worker was seen in D, and in no other state, for the whole limit.
  bool see(int rank, char state, Time now);
  void clear() { since_.clear(); }
  // The interval between looks: a stuck worker is found at most a quarter of the limit too late.
  std::chrono::milliseconds interval() const;

 private:
  std::chrono::milliseconds limit_;
  std::map<int, Time> since_;
};

}  // namespace ddprun
