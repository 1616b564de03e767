// Errors that blame a device, and errors that a program can cause by itself.
#include "launcher/verdict/device_failure.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(DeviceFailure, IsFoundInWhatCudaAndTheDriverSay) {
  for (const char* said :
       {"CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronous",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error", "CUDA error: hardware stack error",
        "NVMLError_GpuIsLost: GPU is lost", "GPU has fallen off the bus"})
    EXPECT_TRUE(device_failure_in(said)) << said;
}

TEST(DeviceFailure, IsNotWhatAProgramDoesByItself) {
  for (const char* said :
       {"", "CUDA error: an illegal memory access was encountered", "CUDA out of memory. Tried to allocate 20.00 MiB",
        "CUDA error: device-side assert triggered", "CUDA error: all CUDA-capable devices are busy or unavailable",
        "CUDA error: no CUDA-capable device is detected", "CUDA error: invalid device ordinal",
        "NCCL error: unhandled system error"})
    EXPECT_FALSE(device_failure_in(said)) << said;
}

}  // namespace
}  // namespace ddprun
