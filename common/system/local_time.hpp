// Formats a time in this machine's time zone. The report and the console use it.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun {

// Returns the time as text, such as "2026-03-01 14:05:09". `between` is the character between date and time. `time_ns` is in
// nanoseconds since 1970. Any thread may call it.
std::string local_time(std::int64_t time_ns, char between = ' ');

}  // namespace ddprun
