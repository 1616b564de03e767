// The sampler's promises: Python's order, and every sample exactly once, whatever the world size.
#include "trainer/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/trainer/data/golden.hpp"

namespace ddprun::trainer {
namespace {

using Samples = std::vector<std::int64_t>;

Samples counted(std::int64_t n) {
  Samples samples(static_cast<std::size_t>(n));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

TEST(EpochOrder, IsPythonsRandperm) {
  for (const auto& entry : golden()["orders"]) {
    EXPECT_EQ(epoch_order(entry["n"], entry["seed"], entry["epoch"]), entry["order"].get<Samples>()) << entry;
  }
}

TEST(EpochOrder, IsPythonsRandpermForAWholeDataSet) {
  const auto entry = golden()["long_order"];
  const Samples order = epoch_order(entry["n"], entry["seed"], entry["epoch"]);
  EXPECT_EQ(Samples(order.begin(), order.begin() + 8), entry["first"].get<Samples>());
  EXPECT_EQ(Samples(order.end() - 8, order.end()), entry["last"].get<Samples>());
  std::int64_t weighted = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    weighted += order[i] * static_cast<std::int64_t>(i + 1);
  }
  EXPECT_EQ(weighted, entry["weighted"].get<std::int64_t>());
}

TEST(EpochOrder, DependsOnTheSumOfSeedAndEpochOnly) {
  EXPECT_EQ(epoch_order(50, 3, 4), epoch_order(50, 7, 0));
}

TEST(ShareOfBatch, TakesEveryWorldthPositionBeginningWithTheRank) {
  const Samples order = counted(20);
  EXPECT_EQ(share_of_batch(order, 8, 8, 3, 0), (Samples{8, 11, 14}));
  EXPECT_EQ(share_of_batch(order, 8, 8, 3, 1), (Samples{9, 12, 15}));
  EXPECT_EQ(share_of_batch(order, 8, 8, 3, 2), (Samples{10, 13}));
}

TEST(ShareOfBatch, OfARaggedBatchMayBeEmpty) {
  EXPECT_TRUE(share_of_batch(counted(10), 8, 2, 4, 2).empty());
  EXPECT_TRUE(share_of_batch(counted(10), 8, 2, 4, 3).empty());
}

TEST(ShareOfBatch, GivesEachSampleOfAnEpochOnceInAnyWorld) {
  for (const std::int64_t n : {1, 7, 64, 101}) {
    for (const std::int64_t batch : {1, 5, 16, 200}) {
      for (const int world : {1, 2, 3, 5, 8}) {
        const Samples order = epoch_order(n, 1, 0);
        Samples seen;
        for (std::int64_t step = 0; step < steps_per_epoch(n, batch); ++step) {
          const std::int64_t position = step * batch;
          const std::int64_t size = std::min(batch, n - position);
          for (int rank = 0; rank < world; ++rank) {
            const Samples share = share_of_batch(order, position, size, world, rank);
            EXPECT_EQ(static_cast<std::int64_t>(share.size()), share_size(size, world, rank));
            seen.insert(seen.end(), share.begin(), share.end());
          }
        }
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(seen, counted(n)) << "n " << n << " batch " << batch << " world " << world;
      }
    }
  }
}

TEST(ShareSize, DiffersByAtMostOneBetweenRanks) {
  for (std::int64_t size = 0; size < 20; ++size) {
    for (int world = 1; world < 7; ++world) {
      EXPECT_LE(share_size(size, world, 0) - share_size(size, world, world - 1), 1);
      EXPECT_EQ(share_size(size, world, 0), (size + world - 1) / world);
    }
  }
}

TEST(StepsPerEpoch, CountsTheRaggedLastBatch) {
  EXPECT_EQ(steps_per_epoch(100, 10), 10);
  EXPECT_EQ(steps_per_epoch(101, 10), 11);
  EXPECT_EQ(steps_per_epoch(3, 10), 1);
}

TEST(EvaluationBlock, CoversAllSamplesOnceInOrder) {
  for (const std::int64_t n : {0, 1, 5, 100, 10000}) {
    for (const int world : {1, 2, 3, 7}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Block block = evaluation_block(n, world, rank);
        EXPECT_EQ(block.first, next);
        EXPECT_LE(block.last - block.first, n / world + 1);
        EXPECT_GE(block.last - block.first, n / world);
        next = block.last;
      }
      EXPECT_EQ(next, n);
    }
  }
}

}  // namespace
}  // namespace ddprun::trainer
