// Tests the sampler of the library that users link (<ddprun/...>). Each sample of a batch is assigned to exactly one rank.
// With the weights that the sampler returns, the mean over ranks equals the mean over samples.
#include <gtest/gtest.h>
#include <ddprun/distributed_sampler.hpp>

#include <set>

#include "common/base/error.hpp"
#include "trainer/data/sampler.hpp"

namespace ddprun {
namespace {

TEST(DistributedSampler, SharesFollowTheEpochOrder) {
  DistributedSampler sampler(/*samples=*/10, /*batch_size=*/4, /*seed=*/3);
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  for (const std::int64_t epoch : {1, 0}) {
    const auto order = trainer::epoch_order(10, 3, epoch);
    const DistributedShare first = sampler.share(3 * epoch, 1, 2);
    EXPECT_EQ(first.epoch, epoch);
    EXPECT_EQ(first.samples, (std::vector<std::int64_t>{order[1], order[3]}));
    EXPECT_EQ(first.weight, 1);
  }
}

TEST(DistributedSampler, ARaggedBatchIsWeightedAndNoRankIsEmpty) {
  DistributedSampler sampler(10, 4, 3);
  std::set<std::int64_t> seen;
  const auto order = trainer::epoch_order(10, 3, 0);
  // Two ranks have one of the 2 samples each; the third rank has a stand-in of weight 0.
  const std::vector<double> weights{1.5, 1.5, 0};
  for (int rank = 0; rank < 3; ++rank) {
    const DistributedShare last = sampler.share(2, rank, 3);
    ASSERT_EQ(last.samples.size(), 1U);
    EXPECT_EQ(last.weight, weights[static_cast<std::size_t>(rank)]);
    if (last.weight > 0) seen.insert(last.samples.front());
  }
  EXPECT_EQ(seen, (std::set<std::int64_t>{order[8], order[9]}));
}

TEST(DistributedSampler, RefusesInvalidArguments) {
  EXPECT_THROW(DistributedSampler(0, 4), UsageError);
  EXPECT_THROW(DistributedSampler(4, 0), UsageError);
  EXPECT_THROW(DistributedSampler(4, 2).share(0, 2, 2), UsageError);
  EXPECT_THROW(DistributedSampler(4, 2).share(-1, 0, 2), UsageError);
}

}  // namespace
}  // namespace ddprun
