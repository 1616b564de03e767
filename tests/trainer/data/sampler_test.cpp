// Tests the sampler: samples are in the same order as in Python, and each sample is used exactly once with any number of ranks.
#include "trainer/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "tests/trainer/data/golden.hpp"

namespace ddprun::trainer {
namespace {

using Samples = std::vector<std::int64_t>;

Samples counted(std::int64_t n) {
  Samples samples(static_cast<std::size_t>(n));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

TEST(EpochOrder, MatchesPythonsRandperm) {
  for (const auto& entry : golden()["orders"]) {
    EXPECT_EQ(epoch_order(entry["n"], entry["seed"], entry["epoch"]), entry["order"].get<Samples>()) << entry;
  }
}

TEST(EpochOrder, MatchesPythonsRandpermForAWholeDataSet) {
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

TEST(ShareOfBatch, TakesEveryWthPositionFromTheRank) {
  const Samples order = counted(20);
  EXPECT_EQ(share_of_batch(order, 8, 8, 3, 0), (Samples{8, 11, 14}));
  EXPECT_EQ(share_of_batch(order, 8, 8, 3, 1), (Samples{9, 12, 15}));
  EXPECT_EQ(share_of_batch(order, 8, 8, 3, 2), (Samples{10, 13}));
}

TEST(ShareOfBatch, MayBeEmptyForARaggedBatch) {
  EXPECT_TRUE(share_of_batch(counted(10), 8, 2, 4, 2).empty());
  EXPECT_TRUE(share_of_batch(counted(10), 8, 2, 4, 3).empty());
}

TEST(ShareOfBatch, CoversEachSampleOnceInAnyWorld) {
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

// The expected values come from tests/whole_program/reference/mixup.py.
TEST(Mixup, OwnPartMatchesPython) {
  const std::vector<std::pair<double, std::vector<float>>> expected{
      {0.2, {0.551183155F, 0.047628391F, 0.998656153F, 0.926712291F}},
      {1.0, {0.576491057F, 0.053166314F, 0.646642243F, 0.322916136F}},
      {4.0, {0.533381247F, 0.257613693F, 0.571086355F, 0.437865822F}}};
  for (const auto& [alpha, parts] : expected) {
    EXPECT_FLOAT_EQ(own_part(alpha, 5, 0, 0), parts[0]);
    EXPECT_FLOAT_EQ(own_part(alpha, 5, 0, 1), parts[1]);
    EXPECT_FLOAT_EQ(own_part(alpha, 5, 3, 7), parts[2]);
    EXPECT_FLOAT_EQ(own_part(alpha, 5, 2, 100'000), parts[3]);
  }
}

TEST(Mixup, OwnPartFollowsTheBetaDistribution) {
  for (const double alpha : {0.2, 1.0, 4.0, 1000.0}) {
    constexpr int kCount = 20'000;
    double sum = 0, squares = 0;
    for (int position = 0; position < kCount; ++position) {
      const double part = own_part(alpha, 1, 0, position);
      sum += part;
      squares += (part - 0.5) * (part - 0.5);
    }
    EXPECT_NEAR(sum / kCount, 0.5, 0.01) << alpha;
    EXPECT_NEAR(squares / kCount * 4 * (2 * alpha + 1), 1, 0.03) << alpha;
  }
}

// With an extremely small alpha the mixup weight is nearly 0 or 1. It must still be a finite number.
TEST(Mixup, OwnPartIsBetween0And1ForAnyAlpha) {
  for (const double alpha : {std::numeric_limits<double>::denorm_min(), 1e-300, 1e-6, 0.01, 1000.0}) {
    for (int position = 0; position < 200; ++position) {
      const float part = own_part(alpha, 1, 0, position);
      EXPECT_TRUE(part >= 0 && part <= 1) << alpha << " " << part;
    }
  }
}

TEST(Mixup, EachSampleHasOnePartner) {
  for (const std::int64_t size : {1, 2, 7, 64}) {
    std::set<std::int64_t> others;
    for (std::int64_t place = 0; place < size; ++place) {
      others.insert(mixed_with(place, size));
      EXPECT_EQ(mixed_with(place, size) == place, size == 1);
    }
    EXPECT_EQ(std::ssize(others), size);
    EXPECT_EQ(*others.begin(), 0);
    EXPECT_EQ(*others.rbegin(), size - 1);
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
