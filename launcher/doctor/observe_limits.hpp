// Reads limits of this process, its cgroups, /dev/shm, the clock and the kernel's rules for debuggers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/doctor/verdicts/judge_limits.hpp"

namespace ddprun::doctor {

LimitFacts observe_limits();
CpuFacts observe_cpus();
SharedMemoryFacts observe_shared_memory();
ClockFacts observe_clock();
TraceFacts observe_tracing();

// Returns the number of bytes that new processes of this cgroup can use now. Returns nullopt if it is not known.
std::optional<std::uint64_t> observe_free_memory();

// Describes the cgroup folders of this process, and whether ddprun can create cgroups for its workers there. Only the doctor's
// table contains this text.
std::string describe_cgroups();

}  // namespace ddprun::doctor
