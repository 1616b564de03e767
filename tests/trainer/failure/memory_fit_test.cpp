// Tests the limits on batch sizes that a run records when it runs out of memory, and the changes after which the run ignores
// these limits.
#include "trainer/failure/memory_fit.hpp"

#include <gtest/gtest.h>

#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

using channel::Phase;
using channel::Shrink;

TrainConfig config_with(std::int64_t batch, std::int64_t micro) {
  TrainConfig config;
  config.batch_size = batch;
  config.micro_batch_size = micro;
  return config;
}

TEST(ShrinkAfter, TrainingHalvesTheMicroBatchUntilOneSampleIsLeft) {
  const Shrinking first = shrink_after(Phase::kRunning, config_with(128, 0), 2);
  EXPECT_EQ(first.how, Shrink::kDone);
  EXPECT_EQ(first.fit, (MemoryFit{32, 0})) << "each of two ranks has 64";
  EXPECT_EQ(first.text,
            "; the next round uses a micro-batch of 32 samples instead of 64, and the global batch size does not change");
  EXPECT_EQ(shrink_after(Phase::kRunning, config_with(128, 3), 2).fit, (MemoryFit{2, 0}));
  EXPECT_EQ(shrink_after(Phase::kRunning, config_with(128, 2), 2).fit, (MemoryFit{1, 0}));
  const Shrinking last = shrink_after(Phase::kRunning, config_with(128, 1), 2);
  EXPECT_EQ(last.how, Shrink::kNothingLeft);
  EXPECT_NE(last.text.find("is already 1 sample and cannot be reduced"), std::string::npos);
}

TEST(ShrinkAfter, AMicroBatchIsLimitedByTheRankBatch) {
  EXPECT_EQ(shrink_after(Phase::kRunning, config_with(16, 100), 4).fit, (MemoryFit{2, 0}));
}

TEST(ShrinkAfter, EvaluationHalvesTheEvalBatch) {
  TrainConfig config = config_with(128, 8);
  config.eval_batch_size = 1000;
  EXPECT_EQ(shrink_after(Phase::kEvaluating, config, 2).fit, (MemoryFit{0, 500}));
  EXPECT_EQ(shrink_after(Phase::kSaving, config, 2).how, Shrink::kNothingKnown);
  EXPECT_EQ(shrink_after(Phase::kJoining, config, 2).how, Shrink::kNothingKnown);
}

TEST(MemoryFit, IsKeptForTheSameModelAndDevice) {
  const test::TemporaryFolder folder;
  const auto file = folder / "memory-fit.json";
  TrainConfig config = config_with(128, 0);
  config.model.type = ModelConfig::Type::kMlp;
  const std::string key = fit_key(config, "cuda with 40 GiB");
  EXPECT_EQ(key.find("freeze"), std::string::npos) << "earlier versions had no such key, and what they learned is still found";
  EXPECT_NE(key, fit_key(config, "cuda with 140 GiB"));
  EXPECT_EQ(read_fit(file, key), MemoryFit{});
  EXPECT_TRUE(write_fit(file, key, {16, 200}));
  EXPECT_EQ(read_fit(file, key), (MemoryFit{16, 200}));
  EXPECT_EQ(read_fit(file, fit_key(config, "cpu")), MemoryFit{});
  TrainConfig wider = config;
  wider.model.hidden = {1024, 1024};
  EXPECT_EQ(read_fit(file, fit_key(wider, "cuda with 40 GiB")), MemoryFit{});
  TrainConfig other_batch = config;
  other_batch.batch_size = 256;
  EXPECT_EQ(read_fit(file, fit_key(other_batch, "cuda with 40 GiB")), (MemoryFit{16, 200})) << "the same size fits";
  test::write_text(file, "{ half");
  EXPECT_EQ(read_fit(file, key), MemoryFit{});
  EXPECT_FALSE(write_fit(folder / "none" / "x.json", key, {1, 1}));
}

TEST(MemoryFit, TheSmallestFitOfAllRanksApplies) {
  EXPECT_EQ(smaller_fit({16, 0}, {32, 100}), (MemoryFit{16, 100}));
  EXPECT_EQ(smaller_fit({0, 0}, {0, 0}), MemoryFit{});
  TrainConfig config = config_with(128, 4);
  config.eval_batch_size = 1000;
  apply_fit(config, {16, 500});
  EXPECT_EQ(config.micro_batch_size, 4) << "the config has a smaller size";
  EXPECT_EQ(config.eval_batch_size, 500);
}

}  // namespace
}  // namespace ddprun::trainer
