// Detects workers that wait in the kernel and cannot be interrupted (state D). Causes are, for example, a dead network file
// system, or a GPU driver that does not respond. TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT is the time after which such a
// worker counts as lost. The code is pure except for process_state(), which reads /proc. launcher/leftovers/stuck_monitor.hpp
// checks only while that variable is set.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string_view>

namespace ddprun {

// Returns the process state letter from /proc/PID/stat, such as 'R', 'S' or 'D'; 0 if the process does not exist.
char process_state(long pid);

// Parses a number of seconds as torchrun does. Returns zero (no checks) if the variable is unset, not a number or negative.
std::chrono::milliseconds stuck_timeout_of(const std::optional<std::string_view>& text);

class StuckWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StuckWatch(std::chrono::milliseconds limit) : limit_(limit) {}
  // Returns true if every observation during the last `limit` found the worker in state D. Returns true only once per stall.
  bool observe(int rank, char state, Time now);
  void clear() { since_.clear(); }
  // Returns the interval between checks. A stuck worker is detected at most a quarter of the limit too late.
  std::chrono::milliseconds interval() const;

 private:
  std::chrono::milliseconds limit_;
  std::map<int, Time> since_;
};

}  // namespace ddprun
