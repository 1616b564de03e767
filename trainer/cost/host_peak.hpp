// Peak resident memory of this process, as the kernel counts it.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// Bytes since the start of the program. Takes about 8 us.
std::int64_t host_peak_memory();

// The same, up to 10 ms old, for the training loop, which reads it in each logged step. For one thread only.
std::int64_t recent_host_peak_memory();

}  // namespace ddprun::trainer
