// The agent's end of torch's file timers (TORCHELASTIC_ENABLE_FILE_TIMER=1): makes the named pipe that workers write to, reads
// their requests, waits for the first that is due and says who is overdue. launcher/agent/agent_shell.cpp owns one when the
// environment asks for it. No polling: a worker is told on within milliseconds of its time.
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

#include "launcher/decide/agent_event.hpp"
#include "launcher/decide/file_timers.hpp"

namespace ddprun {

class FileTimerServer {
 public:
  using OnOverdue = std::function<void(const TimerRequest&)>;

  // The pipe's path under this environment: $TORCHELASTIC_TIMER_FILE, else a new name in $TMPDIR. Nothing: not asked for.
  static std::optional<std::string> path_in(const std::function<std::optional<std::string>(std::string_view)>& environment);

  // Makes the pipe (mode 0600); an older pipe of that name is replaced. Throws UsageError.
  FileTimerServer(boost::asio::io_context& io, std::string path, OnOverdue on_overdue);
  ~FileTimerServer();  // removes it
  FileTimerServer(const FileTimerServer&) = delete;
  FileTimerServer& operator=(const FileTimerServer&) = delete;

  const std::string& path() const { return path_; }
  void forget_all();  // the round's processes are gone

 private:
  void wait_for_requests();
  void read_requests();
  void wait_for_first();

  std::string path_;
  boost::asio::posix::stream_descriptor pipe_;
  boost::asio::system_timer timer_;
  OnOverdue on_overdue_;
  FileTimers timers_;
  std::string unfinished_;  // a line whose end has not been read
};

// Which of the workers (by local rank; 0: it has ended) set the timer. Nothing: it is nobody's of them.
std::optional<agent_event::TimerExpired> whose_timer(const TimerRequest& request, const std::vector<pid_t>& workers);

}  // namespace ddprun
