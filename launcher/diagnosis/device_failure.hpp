// Finds out whether a worker's error message reports a failure of its GPU. A new process would get the same error, since the
// device is broken, missing, or must be reset by a user. Errors that a program itself can cause do not count (an illegal
// address, out of memory, a busy device). The phrases are texts of cudaGetErrorString (CUDA Runtime API, "Error Handling") and
// of NVML. The exceptions of ddptrain and of Python contain these texts. The code is pure: no I/O, no clock.
#pragma once

#include <optional>
#include <string_view>

namespace ddprun {

// Returns the phrase that reports the device failure. Returns nullopt if the message contains no such phrase.
std::optional<std::string_view> device_failure_in(std::string_view message);

}  // namespace ddprun
