// The timers that workers set by torch.distributed.elastic.timer's FileTimerClient: requests as they come over the named pipe,
// and which of them are overdue at a given time. Pure; file_timer_server.cpp owns the pipe and the clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {

// One line of the pipe. A negative time releases the timer.
struct TimerRequest {
  std::int64_t pid = 0;
  std::string scope;
  double expires = 0;  // seconds since 1970
  int signal = 0;      // for the process when it is overdue; 0 or less: none
  bool operator==(const TimerRequest&) const = default;
};

// Nothing for a line that is none of FileTimerClient's.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

class FileTimers {
 public:
  void on(const TimerRequest& request);
  std::optional<double> next() const;  // when the first one is due
  // Those that are due, the earliest of each process that has a signal. All timers of these processes are forgotten, also of
  // those that have none.
  std::vector<TimerRequest> take_overdue(double now);
  void clear() { timers_.clear(); }

 private:
  std::map<std::pair<std::int64_t, std::string>, TimerRequest> timers_;
};

}  // namespace ddprun
