// The most memory that this process has had resident, as the kernel counts it.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// In bytes, since the program began. Takes about 7 us: the training loop asks in steps that are logged.
std::int64_t host_peak_memory();

}  // namespace ddprun::trainer
