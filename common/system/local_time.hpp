// Formats a time in this machine's time zone for users: reports and the console use it.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun {

// "2026-03-01 14:05:09"; `between` separates date and time. `time_ns` are nanoseconds since 1970. Any thread.
std::string local_time(std::int64_t time_ns, char between = ' ');

}  // namespace ddprun
