#include "launcher/hang/tool_run.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/start_program.hpp"

namespace ddprun {
namespace {

using boost::asio::steady_timer;
using boost::asio::posix::stream_descriptor;

constexpr std::size_t kMaxOutput = 1 << 20;

}  // namespace

struct ToolRun::Impl : std::enable_shared_from_this<ToolRun::Impl> {
  Impl(boost::asio::io_context& io, Hooks chosen) : pipe(io), timer(io), end(io), hooks(std::move(chosen)) {}

  void begin(const std::vector<std::string>& command, std::chrono::milliseconds at_most) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return finish_later("cannot be started");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pipe.assign(ends[0]);
    if (start_program(command, ends[1], ends[1], pid) != 0) pid = -1;
    ::close(ends[1]);
    if (pid < 0) return finish_later("cannot be started");
    timer.expires_after(at_most);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->finish("has not answered in time");
    });
    read();
  }

  void read() {
    pipe.async_read_some(boost::asio::buffer(chunk),
                         [self = shared_from_this()](const boost::system::error_code& error, std::size_t n) {
                           if (!self->hooks.done) return;
                           if (self->output.size() < kMaxOutput) self->output.append(self->chunk.data(), n);
                           if (!error) return self->read();
                           self->finish({});
                         });
  }

  void finish_later(const char* problem) {
    boost::asio::post(pipe.get_executor(), [self = shared_from_this(), problem] { self->finish(problem); });
  }

  void finish(const std::string& problem) {
    if (!hooks.done) return;
    end_tool();
    std::exchange(hooks.done, nullptr)(output, problem);
  }

  // A tool that has closed its output is about to end, and SIGKILL makes sure that it does. But a tool that reads another
  // process's memory, or calls a driver, may be stuck in the kernel. So the event loop, which may have a lease to renew, reaps
  // it later and does not block.
  void end_tool() {
    timer.cancel();
    boost::system::error_code ignored;
    pipe.close(ignored);
    if (pid <= 0 || ended) return;
    ended = true;
    ::kill(-pid, SIGKILL);
    if (reap()) return;
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (pidfd < 0) return;  // no free descriptors: the tool remains a zombie until this process exits
    end.assign(pidfd);
    await_end();
  }

  void await_end() {
    end.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
      // If the tool cannot be reaped yet, a debugger traces the tool, and the debugger must reap it first.
      if (!error && !self->reap()) self->await_end();
    });
  }

  // Reaps the tool if it has ended.
  bool reap() {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == 0) return false;
    forget_own_child(pid);
    if (hooks.reaped) hooks.reaped(status);
    boost::system::error_code ignored;
    end.close(ignored);
    return true;
  }

  stream_descriptor pipe;
  steady_timer timer;
  stream_descriptor end;  // the tool's pidfd, while we wait until the tool ends
  Hooks hooks;
  std::array<char, 16384> chunk{};
  std::string output;
  pid_t pid = -1;
  bool ended = false;  // SIGKILL was sent to the tool
};

ToolRun::ToolRun(boost::asio::io_context& io, const std::vector<std::string>& command, std::chrono::milliseconds at_most,
                 Hooks hooks)
    : impl_(std::make_shared<Impl>(io, std::move(hooks))) {
  impl_->begin(command, at_most);
}

ToolRun::~ToolRun() {
  impl_->hooks.done = nullptr;
  impl_->end_tool();
}

}  // namespace ddprun
