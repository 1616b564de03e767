// The most memory that this process has had resident, as the kernel counts it.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// In bytes, since the program began. Takes about 8 us.
std::int64_t host_peak_memory();

// The same, up to 10 ms old: for the training loop, which asks in each step that is logged. From one thread only.
std::int64_t recent_host_peak_memory();

}  // namespace ddprun::trainer
