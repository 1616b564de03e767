#include "launcher/file_timers/file_timer_server.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using Clock = std::chrono::system_clock;

// Longer lines are dropped. A client must write its request atomically, so a valid request is shorter than PIPE_BUF.
constexpr std::size_t kMaxLineBytes = 64 << 10;
constexpr double kMaxWait = 365 * 86400.0;  // upper limit in seconds, since some clients set a time in the far future

double now_in_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UsageError("TORCHELASTIC_ENABLE_FILE_TIMER=1: cannot create the named pipe " + path + ": " + why +
                   "; set TORCHELASTIC_TIMER_FILE to another path");
}

int make_pipe(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISFIFO(info.st_mode)) refuse(path, "a file with that name exists and is not a pipe");
    ::unlink(path.c_str());
  }
  if (::mkfifo(path.c_str(), 0600) != 0) refuse(path, std::strerror(errno));
  // The pipe is opened for writing as well, so that reads never reach end of file when all clients have closed it.
  const int fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) refuse(path, std::strerror(errno));
  return fd;
}

}  // namespace

std::optional<std::string> FileTimerServer::path_in(
    const std::function<std::optional<std::string>(std::string_view)>& environment) {
  if (environment("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return std::nullopt;
  if (auto path = environment("TORCHELASTIC_TIMER_FILE")) return path;
  const std::string folder = environment("TMPDIR").value_or("");
  std::random_device random;
  const std::string name = std::to_string(random()) + std::to_string(random());
  return (folder.empty() ? "/tmp" : folder) + "/watchdog_timer_" + name;
}

FileTimerServer::FileTimerServer(boost::asio::io_context& io, std::string path, OnOverdue on_overdue)
    : path_(std::move(path)), pipe_(io, make_pipe(path_)), timer_(io), on_overdue_(std::move(on_overdue)) {
  wait_for_requests();
}

FileTimerServer::~FileTimerServer() {
  ::unlink(path_.c_str());
}

void FileTimerServer::forget_all() {
  timers_.clear();
  timer_.cancel();
}

void FileTimerServer::wait_for_requests() {
  pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    read_requests();
    wait_for_first();
    wait_for_requests();
  });
}

void FileTimerServer::read_requests() {
  std::array<char, 4096> chunk{};
  const ssize_t n = ::read(pipe_.native_handle(), chunk.data(), chunk.size());
  if (n <= 0) return;
  unfinished_.append(chunk.data(), static_cast<std::size_t>(n));
  for (std::size_t end = 0; (end = unfinished_.find('\n')) != std::string::npos; unfinished_.erase(0, end + 1)) {
    if (const auto request = parse_timer_request(std::string_view(unfinished_).substr(0, end))) timers_.on(*request);
  }
  if (unfinished_.size() > kMaxLineBytes) unfinished_.clear();
}

void FileTimerServer::wait_for_first() {
  const std::optional<double> first = timers_.next();
  if (!first) {
    timer_.cancel();
    return;
  }
  const double wait = std::clamp(*first - now_in_seconds(), 0.0, kMaxWait);
  timer_.expires_after(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait)) +
                       std::chrono::microseconds(1));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    for (const TimerRequest& overdue : timers_.take_overdue(now_in_seconds())) on_overdue_(overdue);
    wait_for_first();
  });
}

// The session id of a process identifies its worker: each worker is a session leader, and its child processes belong to that
// session unless they have left it. If another process has reused the pid of the process that set the timer, the session of
// the new process matches no worker.
std::optional<agent_event::TimerExpired> worker_of_timer(const TimerRequest& request, const std::vector<pid_t>& workers) {
  const pid_t session = ::getsid(static_cast<pid_t>(request.pid));
  const auto found = std::find(workers.begin(), workers.end(), session);
  if (session <= 0 || found == workers.end()) return std::nullopt;
  std::string message = "timer expired: '" + request.scope + "' did not finish in time";
  if (request.pid != session) message += " (process " + std::to_string(request.pid) + ")";
  return agent_event::TimerExpired{static_cast<int>(found - workers.begin()), request.signal, std::move(message)};
}

}  // namespace ddprun
