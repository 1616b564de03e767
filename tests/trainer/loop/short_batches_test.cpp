// Tests the smallest number of samples in any forward pass of a run. It is computed from the batch sizes, and must equal the
// number of samples that the loader returns.
#include "trainer/loop/short_batches.hpp"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "trainer/data/loader.hpp"

namespace ddprun::trainer {
namespace {

TrainConfig config_of(std::int64_t batch_size, std::int64_t micro_batch_size = 0, std::int64_t max_steps = 0) {
  TrainConfig config;
  config.batch_size = batch_size;
  config.micro_batch_size = micro_batch_size;
  config.max_steps = max_steps;
  return config;
}

std::int64_t fewest(const TrainConfig& config, std::int64_t samples, int world) {
  return min_samples_per_pass(config, run_length(config, samples), world);
}

TEST(ShortBatches, TheLastBatchAndMicroBatchRemaindersCount) {
  EXPECT_EQ(fewest(config_of(32), 97, 1), 1);
  EXPECT_EQ(fewest(config_of(32), 96, 1), 32);
  EXPECT_EQ(fewest(config_of(32), 98, 2), 1);
  EXPECT_EQ(fewest(config_of(32, 5), 96, 2), 1) << "16 samples are 5, 5, 5 and 1";
  EXPECT_EQ(fewest(config_of(32), 97, 2), 1) << "the other worker borrows one";
  EXPECT_EQ(fewest(config_of(32, 0, 2), 97, 1), 32) << "the run ends before the last batch";
  EXPECT_EQ(fewest(config_of(1000), 97, 1), 97) << "one batch an epoch";
}

TEST(ShortBatches, SyncedBatchNormCountsAllPassesOfAStep) {
  TrainConfig config = config_of(32);
  config.model.sync_batch_norm = true;
  EXPECT_EQ(fewest(config, 98, 2), 2);
  EXPECT_EQ(fewest(config, 97, 2), 1);
  config.micro_batch_size = 5;
  EXPECT_EQ(fewest(config, 96, 2), 2) << "the fourth pass of both workers";
}

class Zeros : public Source {
 public:
  explicit Zeros(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  Description describe() const override { return {.tensors = {{.sizes = {}}}}; }
  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    return {.tensors = {at::zeros({static_cast<std::int64_t>(samples.size())})}, .weight = static_cast<double>(samples.size())};
  }
  std::string fingerprint() const override { return "zeros"; }

 private:
  std::int64_t size_;
};

TEST(ShortBatches, MatchTheLoader) {
  for (const std::int64_t samples : {7, 12, 13}) {
    for (const std::int64_t batch : {3, 4, 12}) {
      for (const std::int64_t micro : {0, 2, 3}) {
        for (const int world : {1, 2, 3}) {
          const TrainConfig config = config_of(batch, std::min(micro, batch));
          const RunLength length = run_length(config, samples);
          const Zeros source(samples);
          std::int64_t found = std::numeric_limits<std::int64_t>::max();
          for (int rank = 0; rank < world; ++rank) {
            Loader loader(source,
                          {.batch_size = batch, .micro_batch_size = config.micro_batch_size, .world = world, .rank = rank}, 0,
                          length.total_steps);
            for (std::int64_t step = 0; step < length.total_steps; ++step) {
              for (const Batch& one : loader.next().micro_batches) found = std::min(found, one.tensors[0].size(0));
            }
          }
          EXPECT_EQ(min_samples_per_pass(config, length, world), found)
              << samples << " samples, batch " << batch << ", micro " << micro << ", " << world << " workers";
        }
      }
    }
  }
}

TEST(ShortBatches, AnErrorNamesTheSizes) {
  const TrainConfig config = config_of(32);
  EXPECT_EQ(short_batch_problem(config, run_length(config, 97), 1, 1), "");
  const std::string problem = short_batch_problem(config, run_length(config, 97), 1, 2);
  for (const char* part :
       {"needs at least 2 samples", "97 training samples", "batch_size 32", "1 worker", "data.train_samples"}) {
    EXPECT_NE(problem.find(part), std::string::npos) << problem;
  }
}

}  // namespace
}  // namespace ddprun::trainer
