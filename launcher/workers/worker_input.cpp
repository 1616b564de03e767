// Note: we detect a read from a pipe or terminal with inotify. The kernel does not report how much was read from a pipe, and
// does not update its access time (Linux 6.18). epoll does not help, because a worker may read data before the agent wakes up.
#include "launcher/workers/worker_input.hpp"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddprun {

WorkerInput::WorkerInput(bool passed_on) {
  struct stat info {};
  if (!passed_on || ::fstat(STDIN_FILENO, &info) != 0) return;
  if (S_ISREG(info.st_mode)) {
    offset_ = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
    return;
  }
  termios settings{};
  if (S_ISCHR(info.st_mode) && ::tcgetattr(STDIN_FILENO, &settings) == 0) settings_ = settings;
  if (!settings_ && !S_ISFIFO(info.st_mode)) return;
  watch_ = Descriptor(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (watch_.get() >= 0) ::inotify_add_watch(watch_.get(), "/proc/self/fd/0", IN_ACCESS | IN_ONESHOT);
}

WorkerInput::~WorkerInput() {
  termios now{};
  if (!settings_ || ::tcgetpgrp(STDIN_FILENO) != ::getpgrp() || ::tcgetattr(STDIN_FILENO, &now) != 0) return;
  const bool same = now.c_iflag == settings_->c_iflag && now.c_oflag == settings_->c_oflag &&
                    now.c_cflag == settings_->c_cflag && now.c_lflag == settings_->c_lflag;
  if (!same) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*settings_);
}

std::optional<std::string> WorkerInput::missing_input() {
  if (offset_ >= 0) {
    const std::int64_t now = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
    if (now <= offset_) return std::nullopt;
    return std::to_string(now - offset_) +
           " bytes of standard input were read before this restart: the restarted workers receive only the bytes after them";
  }
  char events[4096];
  if (watch_.get() >= 0 && ::read(watch_.get(), events, sizeof events) > 0) was_read_ = true;
  if (!was_read_) return std::nullopt;
  return "a part of standard input was read before this restart: the restarted workers receive only the remaining part";
}

}  // namespace ddprun
