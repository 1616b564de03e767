// Tests the table of the peak performance of GPUs, whose key is the device name in CUDA.
#include "trainer/cost/gpu_peak.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

using Precision = TrainConfig::Precision;

TEST(GpuPeak, TheLongestMatchingNameWins) {
  EXPECT_EQ(gpu_peak("NVIDIA H200", Precision::kBf16), 989e12);
  EXPECT_EQ(gpu_peak("NVIDIA H100 80GB HBM3", Precision::kFp16), 989e12);
  EXPECT_EQ(gpu_peak("NVIDIA H100 PCIe", Precision::kBf16), 756e12);
  EXPECT_EQ(gpu_peak("NVIDIA A100-SXM4-80GB", Precision::kTf32), 156e12);
  EXPECT_EQ(gpu_peak("NVIDIA A10G", Precision::kFp32), 31.5e12);
  EXPECT_EQ(gpu_peak("NVIDIA L40S", Precision::kBf16), 362e12);
  EXPECT_EQ(gpu_peak("NVIDIA L4", Precision::kBf16), 121e12);
  EXPECT_EQ(gpu_peak("NVIDIA GB200", Precision::kBf16), 2500e12);
}

TEST(GpuPeak, AnUnknownDeviceHasNoPeak) {
  for (const char* name : {"NVIDIA GeForce GT 710", "NVIDIA RTX A1000", "NVIDIA RTX A4000", "NVIDIA T400",
                           "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 Laptop GPU"}) {
    EXPECT_FALSE(gpu_peak(name, Precision::kFp32)) << name;
  }
}

}  // namespace
}  // namespace ddprun::trainer
