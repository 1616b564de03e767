// Implementation of last_word.hpp. Everything here may fail. Then nothing is sent, and the other node ends as it does without a
// death notice.
#include "launcher/guardian/last_word.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace ddprun::guardian {
namespace {

constexpr int kTries = 50;
constexpr int kBetweenTriesMs = 200;

// The lock file stays, since it shows the next agent that there was a record (rendezvous/shell/record_file.hpp).
bool take_record_away(const std::string& record) {
  if (record.empty()) return true;
  const int lock = ::open((record + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) return false;
  const bool gone = ::flock(lock, LOCK_EX | LOCK_NB) == 0 && (::unlink(record.c_str()) == 0 || errno == ENOENT);
  ::close(lock);
  return gone;
}

}  // namespace

void say_last_word(const LastWord& word) {
  if (word.to_size == 0 || !take_record_away(word.record.data())) return;
  const int fd = ::socket(word.to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto* to = reinterpret_cast<const sockaddr*>(&word.to);
  if (::connect(fd, to, word.to_size) == 0) {
    std::array<char, 96> answer{};
    for (int i = 0; i < kTries; ++i) {
      (void)::send(fd, word.text.data(), word.size, MSG_NOSIGNAL);
      pollfd polled{fd, POLLIN, 0};
      if (::poll(&polled, 1, kBetweenTriesMs) <= 0) continue;
      const ssize_t size = ::recv(fd, answer.data(), answer.size(), MSG_DONTWAIT);
      if (size == static_cast<ssize_t>(word.size) && std::memcmp(answer.data(), word.text.data(), word.size) == 0) break;
      if (size < 0) ::poll(nullptr, 0, kBetweenTriesMs);  // no process listens there, so the error came immediately
    }
  }
  ::close(fd);
}

}  // namespace ddprun::guardian
