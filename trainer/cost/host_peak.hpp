// Measures the peak resident memory of this process, as the kernel counts it.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// Returns the peak since the start of the program, in bytes. The call takes about 8 us.
std::int64_t host_peak_memory();

// Works like host_peak_memory(), but the value can be up to 10 ms old. The training loop calls this function in each logged
// step. Only one thread may call it.
std::int64_t recent_host_peak_memory();

}  // namespace ddprun::trainer
