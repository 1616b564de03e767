// Implementation of spawn.hpp.
//
// Note: vfork. fork() would copy the guardian's page tables and cause page faults in both processes. With vfork() a worker
// starts in a fraction of that time.
//
// Note: the order of calls in the child. No call after PR_SET_PDEATHSIG may clear this setting. The setting has no effect if
// the parent is already dead, so getppid() is checked afterwards. Signal dispositions are reset before signals are unblocked.
// So a signal that was blocked until then kills the child and is not lost.
#include "launcher/guardian/spawn.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Converts CPU numbers into a mask for sched_setaffinity. The type cpu_set_t is not used, because it limits the number of CPUs.
std::vector<unsigned long> mask_of(const std::vector<int>& cpus) {
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask;
  for (const int cpu : cpus) {
    const auto bit = static_cast<std::size_t>(cpu);
    if (mask.size() <= bit / kBits) mask.resize(bit / kBits + 1);
    mask[bit / kBits] |= 1UL << (bit % kBits);
  }
  return mask;
}

std::string text_of_numbers(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) (text += std::to_string(number)) += ' ';
  return text;
}

std::vector<int> numbers_in(std::string_view text) {
  std::vector<int> numbers;
  const char *at = text.data(), *end = text.data() + text.size();
  for (int number = 0; at < end; ++at) {
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc()) throw std::runtime_error("an incomplete spawn request");
    numbers.push_back(number);
    at = stop;
  }
  return numbers;
}

// ---- in the child ----

struct Child {
  int worker;
  int error_pipe;
  pid_t parent;
  const std::vector<unsigned long>& cpus;
  [[noreturn]] void give_up(SpawnError::Stage stage) const {
    const SpawnError error{worker, stage, errno};
    [[maybe_unused]] const ssize_t n = ::write(error_pipe, &error, sizeof error);
    ::_exit(127);
  }
};

// Resets the signal settings for the new program. Signals that were ignored when ddprun was started stay ignored across exec.
// SIGPIPE and SIGXFSZ are the exception: they are always reset, since programs expect to be killed by them. Python's subprocess
// module, and so torchrun, does the same.
void reset_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void raise_oom_score() {
  const int fd = ::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  char text[16] = {};
  const bool known = ::read(fd, text, sizeof text - 1) > 0;
  const long inherited = std::strtol(text, nullptr, 10);
  if (known && worker_oom_score(inherited) != inherited) {
    const int n = std::snprintf(text, sizeof text, "%ld", worker_oom_score(inherited));
    [[maybe_unused]] const ssize_t written = ::pwrite(fd, text, static_cast<std::size_t>(n), 0);
  }
  ::close(fd);
}

bool place(int from, int to) {
  if (from != to) return ::dup2(from, to) == to;
  return ::fcntl(to, F_SETFD, 0) == 0;
}

// Moves the descriptors to their final numbers 0 to 3. All of them are first moved above 3, so that no dup2() overwrites
// another one.
bool place_descriptors(SpawnDescriptors fds) {
  if (fds.standard_input < 0) fds.standard_input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (fds.standard_input < 0) return false;
  const auto away = [](int& fd) { return fd < 0 || (fd = ::fcntl(fd, F_DUPFD_CLOEXEC, kWorkerChannelFd + 1)) >= 0; };
  if (!away(fds.standard_input) || !away(fds.standard_output) || !away(fds.standard_error) || !away(fds.channel)) return false;
  return place(fds.standard_input, STDIN_FILENO) && place(fds.standard_output, STDOUT_FILENO) &&
         place(fds.standard_error, STDERR_FILENO) && (fds.channel < 0 || place(fds.channel, kWorkerChannelFd));
}

// Sets CLOEXEC on all other descriptors. It does not close them, since the error pipe is needed until exec.
void leave_no_other_descriptor(int first) {
  if (::syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536));
  for (int fd = first; fd < end; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// The child shares the guardian's stack and memory until exec (vfork). So it makes only system calls and changes only its own
// local variables.
[[noreturn, gnu::noinline]] void become_worker(const Child& child, char* const* arguments, char* const* environment,
                                               const SpawnDescriptors& descriptors, const rlimit& open_files) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != child.parent) child.give_up(SpawnError::Stage::kParentGone);
  if (!place_descriptors(descriptors)) child.give_up(SpawnError::Stage::kDescriptors);
  leave_no_other_descriptor(descriptors.channel >= 0 ? kWorkerChannelFd + 1 : kWorkerChannelFd);
  raise_oom_score();
  // This is a direct system call, because glibc's wrapper takes a cpu_set_t.
  if (!child.cpus.empty() &&
      ::syscall(SYS_sched_setaffinity, 0, child.cpus.size() * sizeof(unsigned long), child.cpus.data()) != 0) {
    child.give_up(SpawnError::Stage::kCpus);
  }
  ::setrlimit(RLIMIT_NOFILE, &open_files);
  reset_signals();
  ::execve(arguments[0], arguments, environment);
  child.give_up(SpawnError::Stage::kExec);
}

}  // namespace

std::string describe(const SpawnError& error, const std::string& program) {
  const std::string reason = std::generic_category().message(error.error);
  switch (error.stage) {
    case SpawnError::Stage::kParentGone:
      return "the process job-guardian died while '" + program + "' was started";
    case SpawnError::Stage::kDescriptors:
      return "cannot set up the file descriptors of '" + program + "': " + reason;
    case SpawnError::Stage::kCpus:
      return "cannot bind '" + program + "' to its CPUs (--numa-binding): " + reason +
             "; allow this process to use all CPUs that --dry-run shows (affinity, cgroup)";
    case SpawnError::Stage::kExec:
      break;
  }
  return "cannot start '" + program + "': " + reason;
}

int move_up(int fd) {
  if (fd < 0 || fd > kWorkerChannelFd) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, kWorkerChannelFd + 1);
  if (moved < 0) return fd;
  ::close(fd);
  return moved;
}

std::string pack(const SpawnRequest& request) {
  std::string bytes = std::to_string(request.arguments.size()) + '\0' + text_of_numbers(request.cpus) + '\0';
  std::size_t size = bytes.size();
  for (const auto* list : {&request.arguments, &request.environment}) {
    for (const std::string& text : *list) size += text.size() + 1;
  }
  bytes.reserve(size);
  for (const std::string& argument : request.arguments) (bytes += argument) += '\0';
  for (const std::string& variable : request.environment) (bytes += variable) += '\0';
  return bytes;
}

Descriptor memfd_of(std::string_view bytes) {
  Descriptor memfd(::memfd_create("worker", MFD_CLOEXEC));
  if (memfd.get() < 0) throw_errno("memfd_create");
  if (const int error = write_all(memfd.get(), bytes); error != 0) {
    throw std::system_error(error, std::generic_category(), "writing a worker's arguments and environment to a memfd");
  }
  return memfd;
}

std::vector<char> bytes_of(int memfd) {
  struct stat status {};
  if (::fstat(memfd, &status) != 0) throw_errno("fstat of a spawn request");
  std::vector<char> bytes(static_cast<std::size_t>(status.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pread(memfd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n <= 0) throw_errno("reading a spawn request");
    done += static_cast<std::size_t>(n);
  }
  return bytes;
}

UnpackedRequest unpack(std::vector<char> packed) {
  UnpackedRequest request{.bytes = std::move(packed), .arguments = {}, .environment = {}, .cpus = {}};
  std::vector<char>& bytes = request.bytes;
  std::vector<char*> texts;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const void* const end = std::memchr(bytes.data() + begin, '\0', bytes.size() - begin);
    if (end == nullptr) throw std::runtime_error("an incomplete spawn request");
    texts.push_back(bytes.data() + begin);
    begin = static_cast<std::size_t>(static_cast<const char*>(end) - bytes.data()) + 1;
  }
  std::size_t count = 0;
  if (!texts.empty()) std::from_chars(texts[0], texts[0] + std::strlen(texts[0]), count);
  if (count == 0 || count + 1 >= texts.size()) throw std::runtime_error("a spawn request without a program");
  request.cpus = numbers_in(texts[1]);
  const auto first = texts.begin() + 2;
  const auto middle = first + static_cast<std::ptrdiff_t>(count);
  request.arguments.assign(first, middle);
  request.arguments.push_back(nullptr);
  request.environment.assign(middle, texts.end());
  request.environment.push_back(nullptr);
  return request;
}

pid_t spawn_worker(int worker, const UnpackedRequest& request, const SpawnDescriptors& descriptors, int error_pipe,
                   const rlimit& open_files) {
  const std::vector<unsigned long> cpus = mask_of(request.cpus);
  const Child child{worker, error_pipe, ::getpid(), cpus};
  const pid_t pid = ::vfork();
  if (pid == 0) become_worker(child, request.arguments.data(), request.environment.data(), descriptors, open_files);
  if (pid < 0) throw_errno("vfork");
  return pid;
}

}  // namespace ddprun
