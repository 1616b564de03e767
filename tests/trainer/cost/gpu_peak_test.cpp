// The most that a GPU can do, by the names that CUDA gives devices.
#include "trainer/cost/gpu_peak.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

using Precision = TrainConfig::Precision;

TEST(GpuPeak, IsThatOfTheLongestNameThatFits) {
  EXPECT_EQ(gpu_peak("NVIDIA H200", Precision::kBf16), 989e12);
  EXPECT_EQ(gpu_peak("NVIDIA H100 80GB HBM3", Precision::kFp16), 989e12);
  EXPECT_EQ(gpu_peak("NVIDIA H100 PCIe", Precision::kBf16), 756e12);
  EXPECT_EQ(gpu_peak("NVIDIA A100-SXM4-80GB", Precision::kTf32), 156e12);
  EXPECT_EQ(gpu_peak("NVIDIA A10G", Precision::kFp32), 31.5e12);
  EXPECT_EQ(gpu_peak("NVIDIA L40S", Precision::kBf16), 362e12);
  EXPECT_EQ(gpu_peak("NVIDIA L4", Precision::kBf16), 121e12);
  EXPECT_EQ(gpu_peak("NVIDIA GB200", Precision::kBf16), 2500e12);
}

TEST(GpuPeak, OfAnUnknownDeviceIsNotKnown) {
  EXPECT_FALSE(gpu_peak("NVIDIA GeForce GT 710", Precision::kFp32));
}

}  // namespace
}  // namespace ddprun::trainer
