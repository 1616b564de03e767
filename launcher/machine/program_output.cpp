#include "launcher/machine/program_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/system/descriptor.hpp"
#include "common/system/start_program.hpp"

namespace ddprun {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxErrorOutput = 4096;

struct Pipe {
  Descriptor read;
  Descriptor write;
  bool open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
    ::fcntl(read.get(), F_SETFL, O_NONBLOCK);
    return true;
  }
};

// Appends the available bytes to `text`, up to `most` bytes in total. Closes `from` at the end of the file. Returns false if
// bytes were dropped because of the limit.
bool read_available(Descriptor& from, std::string& text, std::size_t most) {
  std::array<char, 16384> chunk{};
  while (from.get() >= 0) {
    const ssize_t count = ::read(from.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) {
      from = Descriptor();
      return true;
    }
    const std::size_t kept = std::min(static_cast<std::size_t>(count), most - text.size());
    text.append(chunk.data(), kept);
    if (kept < static_cast<std::size_t>(count)) return false;
  }
  return true;
}

int milliseconds_until(steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 1 << 30));
}

// Blocks signals while the program runs. The program has its own process group, so a Ctrl-C reaches only this process. A signal
// ends the wait for the program, and takes effect when it is unblocked here. Ignored signals stay ignored.
class SignalBlock {
 public:
  SignalBlock() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
      struct sigaction now {};
      if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&held, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
    signal_fd_ = Descriptor(::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalBlock() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

  int signal_fd() const { return signal_fd_.get(); }

 private:
  sigset_t before_{};
  Descriptor signal_fd_;
};

// Reads until the program has ended or exceeded a limit. Does not reap the program.
ProgramOutput::End read_until_end(int pidfd, int signals, Descriptor& output, Descriptor& error_output,
                                  const OutputLimits& limits, ProgramOutput& out) {
  const auto deadline = steady_clock::now() + limits.time;
  while (true) {
    std::array<pollfd, 4> watched{{{pidfd, POLLIN, 0},
                                   {output.get(), POLLIN, 0},
                                   {error_output.get(), POLLIN, 0},
                                   {signals, POLLIN, 0}}};  // poll ignores negative descriptors
    const int ready = ::poll(watched.data(), watched.size(), milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 || watched[3].revents != 0 || steady_clock::now() >= deadline) return ProgramOutput::End::kTimedOut;
    // The exit is checked before the pipes are read, so that everything written before the exit is read.
    const bool ended = watched[0].revents != 0;
    if (!read_available(output, out.text, limits.bytes)) return ProgramOutput::End::kOutputTooLarge;
    read_available(error_output, out.error_output, kMaxErrorOutput);
    const bool closed = output.get() < 0 && error_output.get() < 0;
    // On a kernel without pidfds, closed pipes are the sign that the program has ended.
    if (ended || (pidfd < 0 && closed)) return ProgramOutput::End::kExited;
  }
}

}  // namespace

ProgramOutput output_of(const std::vector<std::string>& command, const OutputLimits& limits) {
  ProgramOutput out;
  Pipe output, error_output;
  pid_t pid = -1;
  int error = output.open() && error_output.open() ? 0 : errno;
  const SignalBlock signals;
  if (error == 0) error = start_program(command, output.write.get(), error_output.write.get(), pid);
  if (error != 0) return {.end = ProgramOutput::End::kNotStarted, .number = error, .text = {}, .error_output = {}};
  output.write = Descriptor();
  error_output.write = Descriptor();
  const Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  out.end = read_until_end(pidfd.get(), signals.signal_fd(), output.read, error_output.read, limits, out);
  ::kill(-pid, SIGKILL);  // the whole process group, including children that the program left behind
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  forget_own_child(pid);
  if (out.end != ProgramOutput::End::kExited) return out;
  if (WIFSIGNALED(status)) out.end = ProgramOutput::End::kSignalled;
  out.number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return out;
}

}  // namespace ddprun
