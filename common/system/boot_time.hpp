// The clock of leases: time since the machine was started, the time that it slept included. A lease goes on while a machine
// sleeps, so who wakes up must find that it is over; std::chrono::steady_clock stands still meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace ddprun {

// CLOCK_BOOTTIME.
inline std::chrono::nanoseconds time_since_boot() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace ddprun
