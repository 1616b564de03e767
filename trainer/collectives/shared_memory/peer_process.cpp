// Implementation of peer_process.hpp.
#include "trainer/collectives/shared_memory/peer_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "common/base/numbers.hpp"

namespace ddprun::trainer::collectives {
namespace {

std::optional<std::uint64_t> start_time_of(std::int32_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};  // the name of a process has at most 64 bytes
  const ssize_t count = file.get() < 0 ? -1 : ::read(file.get(), text.data(), text.size());
  return count > 0 ? start_time_in({text.data(), static_cast<std::size_t>(count)}) : std::nullopt;
}

std::uint64_t own_pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::optional<std::uint64_t> start_time_in(std::string_view stat) {
  // Number of fields between the name and the start time. The name is in parentheses, and may contain any character.
  constexpr int kFieldsBefore = 20;
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  stat.remove_prefix(name_end + 1);
  for (int field = 0; field < kFieldsBefore; ++field) {
    const std::size_t space = stat.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    stat.remove_prefix(space + 1);
  }
  return exact_number<std::uint64_t>(stat.substr(0, stat.find(' ')));
}

ProcessIdentity this_process() {
  const std::int32_t pid = ::getpid();
  return {.pid = pid, .start_time = start_time_of(pid).value_or(0), .pid_namespace = own_pid_namespace()};
}

PeerProcess::PeerProcess(const ProcessIdentity& identity) {
  if (identity.pid_namespace == 0 || identity.pid_namespace != own_pid_namespace() || identity.start_time == 0) return;
  pidfd_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, identity.pid, 0)));
  if (pidfd_.get() < 0) {
    kind_ = errno == ESRCH ? Kind::kEnded : Kind::kUnknown;
    return;
  }
  const auto start_time = start_time_of(identity.pid);
  // The descriptor was opened before this comparison, so it belongs to the process with this start time.
  kind_ = start_time == identity.start_time ? Kind::kRunning : start_time ? Kind::kEnded : Kind::kUnknown;
}

bool PeerProcess::has_ended() const {
  if (kind_ != Kind::kRunning) return kind_ == Kind::kEnded;
  pollfd polled{pidfd_.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLIN) != 0;
}

}  // namespace ddprun::trainer::collectives
