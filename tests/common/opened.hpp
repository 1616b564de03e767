// Counts how often a file was opened. A test uses it to show that a program does not open a file.
#pragma once

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <stdexcept>

namespace ddprun::test {

class Opened {
 public:
  explicit Opened(const std::filesystem::path& file) : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    // IN_CLOSE adds a close event between two open events. Without this flag, the kernel would merge successive open events
    // into one event.
    if (fd_ < 0 || ::inotify_add_watch(fd_, file.c_str(), IN_OPEN | IN_CLOSE) < 0) {
      ::close(fd_);
      throw std::runtime_error("can't watch " + file.string());
    }
  }
  ~Opened() { ::close(fd_); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  // Returns how often the file was opened since the previous call, or since the construction. Reads at most 100 events in a
  // call.
  int times() const {
    alignas(inotify_event) std::array<char, 100 * sizeof(inotify_event)> events{};
    const ssize_t bytes = ::read(fd_, events.data(), events.size());
    int times = 0;
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
      if ((event->mask & IN_OPEN) != 0) ++times;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return times;
  }

 private:
  int fd_;
};

}  // namespace ddprun::test
