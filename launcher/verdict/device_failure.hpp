// Whether a worker's error message blames its GPU: an error that a new process would meet again, since the device is broken,
// gone, or must be reset by a person. Errors that a program can cause by itself (an illegal address, out of memory, a device
// that is busy) are not among them. The words are those of cudaGetErrorString (CUDA Runtime API, "Error Handling") and of NVML;
// both ddptrain's and Python's exceptions carry them on. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace ddprun {

// The device's failure, in the driver's words.
std::optional<std::string_view> device_failure_in(std::string_view message);

}  // namespace ddprun
