// The agent's end of torch's file timers (TORCHELASTIC_ENABLE_FILE_TIMER=1). It creates the named pipe for the workers, reads
// their requests, waits for the earliest deadline and reports overdue workers. It does not poll, and reports an overdue worker
// within milliseconds. launcher/agent/agent_shell.cpp creates this object if the environment enables file timers.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/system_timer.hpp>

#include "launcher/agent_state/agent_event.hpp"
#include "launcher/file_timers/file_timers.hpp"

namespace ddprun {

class FileTimerServer {
 public:
  using OnOverdue = std::function<void(const TimerRequest&)>;

  // Returns the path of the pipe: $TORCHELASTIC_TIMER_FILE, else a new name in $TMPDIR. `environment` returns the value of a
  // variable. Returns nullopt if the environment does not enable file timers.
  static std::optional<std::string> path_in(const std::function<std::optional<std::string>(std::string_view)>& environment);

  // Creates the pipe with mode 0600, and replaces an existing pipe with that name. Throws UsageError.
  FileTimerServer(boost::asio::io_context& io, std::string path, OnOverdue on_overdue);
  ~FileTimerServer();  // removes the pipe
  FileTimerServer(const FileTimerServer&) = delete;
  FileTimerServer& operator=(const FileTimerServer&) = delete;

  const std::string& path() const { return path_; }
  void forget_all();  // call this when all processes of the round have ended

 private:
  void wait_for_requests();
  void read_requests();
  void wait_for_first();

  std::string path_;
  boost::asio::posix::stream_descriptor pipe_;
  boost::asio::system_timer timer_;
  OnOverdue on_overdue_;
  FileTimers timers_;
  std::string unfinished_;  // the incomplete last line
};

// Finds the worker that set the timer. `workers` are pids by local rank; 0: the worker has ended. Returns nullopt if none of
// these workers has set it.
std::optional<agent_event::TimerExpired> worker_of_timer(const TimerRequest& request, const std::vector<pid_t>& workers);

}  // namespace ddprun
