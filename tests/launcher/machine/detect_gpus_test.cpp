// Tests which GPUs a worker will see, according to NVML, the device nodes and CUDA_VISIBLE_DEVICES.
// tests/whole_program/test_machine.py tests the query of NVML itself, with a simulated library.
#include "launcher/machine/detect_gpus.hpp"

#include <gtest/gtest.h>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

std::vector<GpuDevice> unnamed(int count) {
  return std::vector<GpuDevice>(static_cast<std::size_t>(count));
}

std::vector<GpuDevice> named() {
  return {
      {"GPU-11aa", "0000:01:00.0", {}}, {"GPU-11bb", "0000:41:00.0", {}}, {"GPU-22cc", "0000:81:00.0", {"MIG-77", "MIG-78"}}};
}

int count(const std::vector<GpuDevice>& devices, const std::optional<std::string>& visible) {
  return static_cast<int>(visible_gpus(devices, visible).size());
}

std::vector<std::string> uuids(const std::string& visible) {
  std::vector<std::string> found;
  for (const GpuDevice& device : visible_gpus(named(), visible)) found.push_back(device.uuid);
  return found;
}

using Uuids = std::vector<std::string>;

TEST(Gpus, WithoutAVariableAllAreVisible) {
  EXPECT_EQ(count(unnamed(4), std::nullopt), 4);
  EXPECT_EQ(visible_gpus(named(), std::nullopt), named());
}

TEST(Gpus, TheListEndsAtTheFirstInvalidEntry) {
  EXPECT_EQ(count(unnamed(4), "0,2"), 2);
  EXPECT_EQ(count(unnamed(4), " 3 , 1 "), 2);
  EXPECT_EQ(count(unnamed(4), "0,7,1"), 1);
  EXPECT_EQ(count(unnamed(4), "-1"), 0);
  EXPECT_EQ(count(unnamed(4), "0,-1,1"), 1);
  EXPECT_EQ(count(unnamed(4), ""), 0);
  EXPECT_EQ(count(unnamed(4), "NoDevFiles"), 0);
  EXPECT_EQ(count(unnamed(4), "99999999999999999999"), 0);
}

TEST(Gpus, OnlyTheLeadingNumberOfAnEntryCounts) {
  EXPECT_EQ(count(unnamed(4), "1gpu2,2ampere"), 2);
  EXPECT_EQ(count(unnamed(4), "1,1x"), 0);
}

TEST(Gpus, ARepeatedEntryHidesAll) {
  EXPECT_EQ(count(unnamed(4), "1,1"), 0);
  EXPECT_EQ(uuids("GPU-11aa,GPU-11a"), Uuids{});
}

TEST(Gpus, OrderFollowsTheVariable) {
  EXPECT_EQ(uuids("2,0"), (Uuids{"GPU-22cc", "GPU-11aa"}));
}

TEST(Gpus, UniqueUuidPrefixesAreAccepted) {
  EXPECT_EQ(uuids("GPU-2,GPU-11b"), (Uuids{"GPU-22cc", "GPU-11bb"}));
  EXPECT_EQ(uuids("GPU-2,GPU-11,GPU-11aa"), (Uuids{"GPU-22cc"}));
  EXPECT_EQ(uuids("GPU-33"), Uuids{});
}

TEST(Gpus, TheFirstEntryDecidesTheKind) {
  EXPECT_EQ(uuids("GPU-2,0"), (Uuids{"GPU-22cc"}));
  EXPECT_EQ(uuids("0,GPU-2"), (Uuids{"GPU-11aa"}));
}

TEST(Gpus, SlicesHaveTheBusIdOfTheirGpu) {
  const auto slices = visible_gpus(named(), "MIG-78,MIG-77");
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].uuid, "MIG-78");
  EXPECT_EQ(slices[1].bus_id, "0000:81:00.0");
  EXPECT_EQ(uuids("MIG-7"), Uuids{});
}

TEST(Gpus, WithoutKnownUuidsAnyUuidIsAccepted) {
  EXPECT_EQ(count(unnamed(4), "GPU-8932f937,GPU-1234"), 2);
  EXPECT_EQ(count(unnamed(1), "MIG-a,MIG-b"), 2);
  EXPECT_EQ(count(unnamed(0), "GPU-8932f937"), 0);
}

TEST(Xpus, AreRenderNodesOfIntelDrivers) {
  const test::TemporaryFolder drm;
  const auto node = [&](const std::string& name, const std::string& driver) {
    std::filesystem::create_directories(drm.path() / name / "device");
    std::filesystem::create_directory_symlink("/sys/bus/pci/drivers/" + driver, drm.path() / name / "device" / "driver");
  };
  EXPECT_EQ(count_intel_gpus(drm.path()), 0);
  node("renderD128", "xe");
  node("renderD129", "amdgpu");
  node("renderD130", "i915");
  node("card0", "xe");
  EXPECT_EQ(count_intel_gpus(drm.path()), 2);
  EXPECT_EQ(count_intel_gpus(drm.path() / "missing"), 0);
}

TEST(Xpus, TheMaskSelectsDevices) {
  EXPECT_EQ(visible_xpus(3, std::nullopt), 3);
  EXPECT_EQ(visible_xpus(3, "0,2"), 2);
  EXPECT_EQ(visible_xpus(3, "0.0,0.1,1.0"), 2);
  EXPECT_EQ(visible_xpus(3, "7"), 0);
}

}  // namespace
}  // namespace ddprun
