// Implementation of death_notice.hpp. If a step fails, no message is sent, and the other node behaves as if death notices did
// not exist.
#include "launcher/guardian/death_notice.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun::guardian {
namespace {

constexpr int kTries = 50;
constexpr int kRetryMs = 200;

// Removes the record, but keeps its lock file, since the lock file shows the next agent that a record existed
// (rendezvous/shell/record_file.hpp).
bool remove_record(const std::string& record) {
  if (record.empty()) return true;
  const Descriptor lock(::open((record + ".lock").c_str(), O_RDWR | O_CLOEXEC));
  return ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 && (::unlink(record.c_str()) == 0 || errno == ENOENT);
}

}  // namespace

void send_death_notice(const DeathNotice& notice) {
  if (notice.to_size == 0 || !remove_record(notice.record.data())) return;
  const Descriptor socket(::socket(notice.to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int fd = socket.get();
  const auto* to = reinterpret_cast<const sockaddr*>(&notice.to);
  if (::connect(fd, to, notice.to_size) != 0) return;
  std::array<char, 96> answer{};
  for (int i = 0; i < kTries; ++i) {
    (void)::send(fd, notice.text.data(), notice.size, MSG_NOSIGNAL);
    pollfd polled{fd, POLLIN, 0};
    if (::poll(&polled, 1, kRetryMs) <= 0) continue;
    const ssize_t size = ::recv(fd, answer.data(), answer.size(), MSG_DONTWAIT);
    if (size == static_cast<ssize_t>(notice.size) && std::memcmp(answer.data(), notice.text.data(), notice.size) == 0) return;
    // If no process has this UDP port open, recv() fails immediately. This wait delays the next try.
    if (size < 0) ::poll(nullptr, 0, kRetryMs);
  }
}

}  // namespace ddprun::guardian
