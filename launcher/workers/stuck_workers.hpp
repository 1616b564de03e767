// Workers that wait in the kernel and cannot be interrupted (state D: a dead network file system, a wedged GPU driver), and for
// how long. TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT is the time after which such a worker counts as lost. Pure except for
// process_state(), which reads /proc. launcher/workers/stuck_look.hpp checks only while that variable is set.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string_view>

namespace ddprun {

// "R", "S", "D", ...; 0 if there is no such process.
char process_state(long pid);

// Parses seconds as torchrun does. Zero (no checks) if the variable is unset, not a number or negative.
std::chrono::milliseconds stuck_timeout_of(const std::optional<std::string_view>& text);

class StuckWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StuckWatch(std::chrono::milliseconds limit) : limit_(limit) {}
  // Returns true once: when the worker was seen in state D, and in no other state, for the whole limit.
  bool see(int rank, char state, Time now);
  void clear() { since_.clear(); }
  // The interval between checks. A stuck worker is found at most a quarter of the limit too late.
  std::chrono::milliseconds interval() const;

 private:
  std::chrono::milliseconds limit_;
  std::map<int, Time> since_;
};

}  // namespace ddprun
