// Tests the copy of the state that is written to disk while training continues. The copy is exact, does not change when the
// original changes, and reuses one block of memory.
#include "trainer/checkpoint/host_copy.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/trainer/checkpoint/sample_state.hpp"

namespace ddprun::trainer {
namespace {

TEST(HostCopy, IsASnapshotOfTheState) {
  const CheckpointState live = sample_state(400);
  HostCopy host;
  const CheckpointState copy = host.take(live);
  EXPECT_TRUE(same_state(copy, sample_state(400)));
  for (const NamedTensor& entry : live.model) entry.tensor.fill_(7);
  EXPECT_TRUE(same_state(copy, sample_state(400))) << "training continues with the original";
}

TEST(HostCopy, ReusesItsMemory) {
  HostCopy host;
  const void* const first = host.take(sample_state(400)).model.front().tensor.const_data_ptr();
  const CheckpointState second = host.take(sample_state(500));
  EXPECT_EQ(second.model.front().tensor.const_data_ptr(), first);
  EXPECT_TRUE(same_state(second, sample_state(500)));
}

TEST(HostCopy, CopiesAnyShapeTypeAndLayout) {
  CheckpointState live;
  live.model = {{"transposed", at::arange(12, at::kFloat).reshape({3, 4}).t()},
                {"slice", at::arange(10, at::kDouble).slice(0, 1, 9, 2)},
                {"empty", at::empty({0, 3}, at::kFloat)},
                {"scalar", at::scalar_tensor(5, at::kLong)},
                {"bytes", at::arange(5, at::kByte)},
                {"half", at::arange(9, at::kHalf)},
                {"grad", at::arange(6, at::kFloat).set_requires_grad(true)}};
  HostCopy host;
  const CheckpointState copy = host.take(live);
  EXPECT_TRUE(same_tensors(copy.model, live.model));
  for (const NamedTensor& entry : copy.model) {
    EXPECT_TRUE(entry.tensor.is_contiguous() && !entry.tensor.requires_grad()) << entry.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry.tensor.const_data_ptr()) % 64, 0U) << entry.name;
  }
}

// The tensors are larger than the block that one thread copies, and their sizes are not multiples of the block size.
TEST(HostCopy, CopiesManyMegabytesExactly) {
  CheckpointState live;
  for (const std::int64_t elements : {9'000'001, 1, 7'654'321, 3}) {
    live.model.push_back({"t" + std::to_string(elements), at::arange(elements, at::kInt)});
  }
  HostCopy host;
  EXPECT_TRUE(same_tensors(host.take(live).model, live.model));
}

// Records the calls of a simulated GPU module. `pinned` contains the memory that is currently pinned.
struct Pinning {
  std::mutex mutex;
  std::map<void*, std::size_t> pinned;
  std::vector<std::thread::id> threads;
  bool refuses = false;

  HostCopy::Source source() {
    return {.on_device = true,
            .synchronize = [] {},
            .pin =
                [this](void* memory, std::size_t bytes) {
                  const std::lock_guard lock(mutex);
                  threads.push_back(std::this_thread::get_id());
                  if (!refuses) pinned[memory] = bytes;
                  return !refuses;
                },
            .unpin =
                [this](void* memory) {
                  const std::lock_guard lock(mutex);
                  EXPECT_EQ(pinned.erase(memory), 1U);
                }};
  }
};

constexpr std::int64_t kFiveMegabytes = 5 << 20;

CheckpointState five_megabyte_state() {
  CheckpointState live;
  live.model = {{"weights", at::arange(kFiveMegabytes / 4, at::kInt)}};
  return live;
}

TEST(HostCopy, PinsOnlyTheNeededMemoryInTheBackground) {
  Pinning pinning;
  {
    const CheckpointState live = five_megabyte_state();
    HostCopy host(pinning.source());
    host.prepare(HostCopy::bytes_for(live));
    const CheckpointState copy = host.take(live);
    EXPECT_TRUE(same_tensors(copy.model, live.model));
    ASSERT_EQ(pinning.pinned.size(), 1U) << "pinned once, and used by the copy";
    EXPECT_EQ(pinning.pinned.begin()->first, copy.model.front().tensor.const_data_ptr());
    EXPECT_EQ(pinning.pinned.begin()->second, 6U << 20) << "whole huge pages, not 8 MiB";
    EXPECT_NE(pinning.threads.at(0), std::this_thread::get_id()) << "training would have waited for it";
  }
  EXPECT_TRUE(pinning.pinned.empty());
}

TEST(HostCopy, WorksWithoutPinnedMemory) {
  Pinning pinning;
  pinning.refuses = true;
  const CheckpointState live = five_megabyte_state();
  HostCopy host(pinning.source());
  host.prepare(1);  // prepares too little memory, so take() must allocate again
  EXPECT_TRUE(same_tensors(host.take(live).model, live.model));
}

TEST(AllFinite, FindsNaNInEveryType) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
      for (const std::int64_t place : {0, 4095, 4096, 9999}) {
        at::Tensor tensor = at::full({10'000}, 1.5, type);
        EXPECT_TRUE(all_finite({{"t", tensor}}));
        tensor.slice(0, place, place + 1).fill_(bad);
        EXPECT_FALSE(all_finite({{"t", tensor}})) << c10::toString(type) << " " << bad << " at " << place;
      }
    }
  }
}

TEST(AllFinite, LargestNumbersAndIntegersAreFinite) {
  EXPECT_TRUE(all_finite({{"f", at::full({3}, std::numeric_limits<float>::max(), at::kFloat)},
                          {"d", at::full({3}, std::numeric_limits<double>::lowest(), at::kDouble)},
                          {"i", at::full({3}, -1, at::kLong)},
                          {"b", at::full({3}, 255, at::kByte)},
                          {"none", at::empty({0}, at::kFloat)}}));
}

}  // namespace
}  // namespace ddprun::trainer
