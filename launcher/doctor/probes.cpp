#include "launcher/doctor/probes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "common/base/signal_name.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/write_all.hpp"

namespace ddprun::doctor {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxOutput = 1U << 20;

struct Child {
  pid_t pid = -1;
  Descriptor output;  // read end of the pipe; closed after end of file
  std::string text;
  int start_error = 0;  // errno of pipe or fork
  bool is_late = false;
  int status = 0;  // from waitpid
};

std::string message_of(int number) {
  return std::generic_category().message(number);
}

Checks checks_of(const Probe& probe) {
  try {
    return probe.examine();
  } catch (const std::exception& failure) {
    return {warning(probe.name, std::string("could not be examined: ") + failure.what(),
                    "correct the cause in this message, then run ddprun doctor again")};
  }
}

// The write end of the pipe to the process that started this probe; -1 in the doctor itself. If a probe starts probes, they
// inherit this descriptor by fork(), and run_child() closes it.
int result_pipe_of_this_process = -1;

// A library such as NVML may print lines, which must not appear among the lines of --json. A child that blocks in the kernel
// must not keep the doctor's standard error open either: a reader of that stream would wait for it.
void detach_streams() {
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  ::close(null);
}

[[noreturn]] void run_child(const Probe& probe, int output, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent ended before prctl()
  detach_streams();
  // If this child can never be killed, the reader of an inherited pipe would wait for end of file without a limit.
  if (result_pipe_of_this_process >= 0) ::close(result_pipe_of_this_process);
  result_pipe_of_this_process = output;
  write_all(output, json_lines_of(checks_of(probe)));
  ::_exit(0);
}

Child start_child(const Probe& probe) {
  Child child;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    child.start_error = errno;
    return child;
  }
  child.output = Descriptor(ends[0]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const Descriptor input(ends[1]);
  const pid_t parent = ::getpid();
  child.pid = ::fork();
  if (child.pid == 0) run_child(probe, input.get(), parent);
  if (child.pid < 0) {
    child.start_error = errno;
    child.output = Descriptor();
  }
  return child;
}

// Reads the bytes that are available. Closes the pipe at end of file, or if the child has written more than kMaxOutput bytes,
// which no check does.
void read_available(Child& child) {
  std::array<char, 16384> chunk{};
  for (;;) {
    const ssize_t count = ::read(child.output.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count > 0) child.text.append(chunk.data(), static_cast<std::size_t>(count));
    if (count > 0 && child.text.size() <= kMaxOutput) continue;
    child.output = Descriptor();
    return;
  }
}

void stop(Child& child) {
  child.is_late = true;
  child.output = Descriptor();
  ::kill(child.pid, SIGKILL);
}

// Reads until each child has closed its pipe or exceeded its limit.
void collect(std::vector<Child>& children, const std::vector<Probe>& probes, steady_clock::time_point start) {
  for (;;) {
    std::vector<pollfd> watched;
    std::vector<Child*> readers;
    steady_clock::time_point next = steady_clock::time_point::max();
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (children[i].output.get() < 0) continue;
      const auto deadline = start + probes[i].limit;
      if (steady_clock::now() >= deadline) {
        stop(children[i]);
        continue;
      }
      next = std::min(next, deadline);
      watched.push_back({children[i].output.get(), POLLIN, 0});
      readers.push_back(&children[i]);
    }
    if (watched.empty()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - steady_clock::now()).count();
    if (::poll(watched.data(), watched.size(), static_cast<int>(std::max<decltype(left)>(left, 0))) <= 0) continue;
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].revents != 0) read_available(*readers[i]);
    }
  }
}

// A killed child may be blocked in the kernel, so it is reaped only if it has ended already.
void reap(Child& child) {
  if (child.pid < 0) return;
  while (::waitpid(child.pid, &child.status, child.is_late ? WNOHANG : 0) < 0 && errno == EINTR) {
  }
}

Checks result_of(const Child& child, const Probe& probe) {
  if (child.start_error != 0) {
    return {error(probe.name, "could not be examined, because no process can be started: " + message_of(child.start_error),
                  "raise the limits on processes and open files: ulimit -u, ulimit -n, pids.max of the cgroup")};
  }
  if (child.is_late) return {probe.late};
  auto checks = checks_of_json_lines(child.text);
  if (checks && WIFEXITED(child.status) && WEXITSTATUS(child.status) == 0) return *std::move(checks);
  const std::string end = WIFSIGNALED(child.status) ? signal_name(WTERMSIG(child.status)) : "an incomplete answer";
  return {warning(probe.name, "could not be examined: the process that examines it ended with " + end,
                  "check the driver or library that this check uses")};
}

}  // namespace

Checks run_probes(const std::vector<Probe>& probes, steady_clock::time_point begin) {
  std::vector<Child> children;
  children.reserve(probes.size());
  for (const Probe& probe : probes) children.push_back(start_child(probe));
  collect(children, probes, begin);
  Checks checks;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    reap(children[i]);
    const Checks one = result_of(children[i], probes[i]);
    checks.insert(checks.end(), one.begin(), one.end());
  }
  return checks;
}

}  // namespace ddprun::doctor
