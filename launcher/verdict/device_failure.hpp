// Whether what a worker wrote about its failure blames its GPU: an error that no new process mends, since the device is broken,
// gone, or has to be reset by somebody. Errors that a program can cause by itself (an illegal address, out of memory, a device
// that is busy) are not among them. The words are those of cudaGetErrorString (CUDA Runtime API, "Error Handling") and of
// NVML; both ddptrain's and Python's exceptions carry them on. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace ddprun {

// What the device suffered, in the driver's words.
std::optional<std::string_view> device_failure_in(std::string_view message);

}  // namespace ddprun
