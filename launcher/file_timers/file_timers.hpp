// Timers that workers set with torch.distributed.elastic.timer's FileTimerClient. The class keeps the requests from the named
// pipe and finds the timers that are overdue at a given time. The code is pure; file_timer_server.cpp owns the pipe and the
// clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {

// One line read from the pipe. A negative expiry time releases the timer.
struct TimerRequest {
  std::int64_t pid = 0;
  std::string scope;
  double expires = 0;  // seconds since 1970
  int signal = 0;      // signal for the process when the timer is overdue; 0 or less: none
  bool operator==(const TimerRequest&) const = default;
};

// Returns nullopt for a line that FileTimerClient did not write.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

class FileTimers {
 public:
  void on(const TimerRequest& request);
  std::optional<double> next() const;  // time at which the earliest timer is due, in seconds since 1970
  // Returns for each process the earliest of its overdue timers that have a signal. Removes all timers of a process that has an
  // overdue timer.
  std::vector<TimerRequest> take_overdue(double now);
  void clear() { timers_.clear(); }

 private:
  std::map<std::pair<std::int64_t, std::string>, TimerRequest> timers_;
};

}  // namespace ddprun
