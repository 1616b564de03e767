// A moment as people of this machine's time zone read it. Called where reports and the console tell when something happened.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun {

// "2026-03-01 14:05:09"; `between` stands between date and time. `time_ns`: nanoseconds since 1970. Any thread.
std::string local_time(std::int64_t time_ns, char between = ' ');

}  // namespace ddprun
