// The clock of leases: the time since boot, including suspends. A lease can expire while its machine is suspended, and the
// process must detect the expiry when the machine resumes. std::chrono::steady_clock cannot be used, because it stops during a
// suspend.
#pragma once

#include <chrono>
#include <ctime>

namespace ddprun {

// Reads CLOCK_BOOTTIME.
inline std::chrono::nanoseconds time_since_boot() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace ddprun
