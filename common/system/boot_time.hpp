// The clock of leases: time since boot, including suspends. A lease expires while a machine is suspended, and a process that
// wakes up must notice that; std::chrono::steady_clock stops during a suspend.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace ddprun {

// Reads CLOCK_BOOTTIME.
inline std::chrono::nanoseconds time_since_boot() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace ddprun
