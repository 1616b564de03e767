// Implementation of worker_input.hpp.
//
// Note: the kernel does not report how much was read from a pipe. The access time of a pipe is not updated (Linux 6.18), and
// epoll misses data that a worker reads before the agent has woken up. inotify reports a read, on pipes and terminals as well.
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
  watch_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (watch_ >= 0) ::inotify_add_watch(watch_, "/proc/self/fd/0", IN_ACCESS | IN_ONESHOT);
}

WorkerInput::~WorkerInput() {
  if (watch_ >= 0) ::close(watch_);
  termios now{};
  if (!settings_ || ::tcgetpgrp(STDIN_FILENO) != ::getpgrp() || ::tcgetattr(STDIN_FILENO, &now) != 0) return;
  const bool same = now.c_iflag == settings_->c_iflag && now.c_oflag == settings_->c_oflag &&
                    now.c_cflag == settings_->c_cflag && now.c_lflag == settings_->c_lflag;
  if (!same) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*settings_);
}

std::optional<std::string> WorkerInput::what_is_gone() {
  if (offset_ >= 0) {
    const std::int64_t now = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
    if (now <= offset_) return std::nullopt;
    return std::to_string(now - offset_) +
           " bytes of standard input were read before this restart: the workers go on after them";
  }
  char events[4096];
  if (watch_ >= 0 && ::read(watch_, events, sizeof events) > 0) was_read_ = true;
  if (!was_read_) return std::nullopt;
  return "standard input was read before this restart: the workers find only what is left of it";
}

}  // namespace ddprun
