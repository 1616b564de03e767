// The wall-clock time in nanoseconds, which is the unit in the report and in failure reports. Both ends of the worker channel
// use it.
#pragma once

#include <cstdint>
#include <ctime>

namespace ddprun {

// Returns the nanoseconds since 1970 (CLOCK_REALTIME).
inline std::int64_t realtime_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace ddprun
