// Tests which error messages prove a broken device. Errors that a program can cause by itself must not count as proof.
#include "launcher/diagnosis/device_failure.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(DeviceFailure, IsFoundInCudaAndDriverMessages) {
  for (const char* message :
       {"CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronous",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error", "CUDA error: hardware stack error",
        "NVMLError_GpuIsLost: GPU is lost", "GPU has fallen off the bus"})
    EXPECT_TRUE(device_failure_in(message)) << message;
}

TEST(DeviceFailure, ProgramErrorsAreNotDeviceFailures) {
  for (const char* message :
       {"", "CUDA error: an illegal memory access was encountered", "CUDA out of memory. Tried to allocate 20.00 MiB",
        "CUDA error: device-side assert triggered", "CUDA error: all CUDA-capable devices are busy or unavailable",
        "CUDA error: no CUDA-capable device is detected", "CUDA error: invalid device ordinal",
        "NCCL error: unhandled system error"})
    EXPECT_FALSE(device_failure_in(message)) << message;
}

}  // namespace
}  // namespace ddprun
