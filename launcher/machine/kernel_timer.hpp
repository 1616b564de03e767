// A timer (timerfd) for the guardian's epoll loop. It stays open until the process ends.
#pragma once

#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>

namespace ddprun {

class KernelTimer {
 public:
  explicit KernelTimer(clockid_t clock) : clock_(clock) {}
  // Returns false with errno set if no descriptor is free. set_after() and set_at() then have no effect.
  bool open() { return (fd_ = ::timerfd_create(clock_, TFD_CLOEXEC | TFD_NONBLOCK)) >= 0; }
  int fd() const { return fd_; }  // becomes readable when the timer fires; -1: not open
  bool is_set() const { return is_set_; }
  void set_after(std::int64_t ns) { set(ns, 0); }
  // if the time is in the past, the timer fires immediately; 0 disarms the timer
  void set_at(std::int64_t ns) { set(ns, TFD_TIMER_ABSTIME); }
  // Returns true if the timer has fired since the last call.
  bool take_expiry() {
    std::uint64_t count = 0;
    if (::read(fd_, &count, sizeof count) <= 0) return false;
    is_set_ = false;
    return true;
  }

 private:
  void set(std::int64_t ns, int flags) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    const itimerspec when{.it_interval = {}, .it_value = {.tv_sec = ns / kSecond, .tv_nsec = ns % kSecond}};
    is_set_ = ::timerfd_settime(fd_, flags, &when, nullptr) == 0;
  }

  clockid_t clock_;
  int fd_ = -1;
  bool is_set_ = false;
};

}  // namespace ddprun
