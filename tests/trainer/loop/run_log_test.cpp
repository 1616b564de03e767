// Tests that the log contains each step and each evaluation exactly once, even if rank 0 is lost before or after it writes an
// entry.
#include "trainer/loop/run_log.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

constexpr RunLength kFourEpochs{
    .samples_per_epoch = 40, .batch_size = 4, .epochs = 4, .steps_per_epoch = 10, .total_steps = 40};
const Evaluation kResult{.figures = {{"loss", 0.5}, {"accuracy", 0.75}}, .samples = 8};

class RunLogTest : public testing::Test {
 protected:
  // Opens the log for a new rank 0, which starts at `step` after the previous rank 0 was lost.
  RunLog& begins(std::int64_t step) {
    log_.emplace(status_, 0);
    log_->open(RunLayout{folder_.path()}, config_, kFourEpochs, step);
    return *log_;
  }
  std::vector<nlohmann::json> entries(const std::string& event) const {
    std::vector<nlohmann::json> entries;
    std::istringstream lines(test::read_text(folder_ / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      if (auto entry = nlohmann::json::parse(line); entry.at("event") == event) entries.push_back(std::move(entry));
    }
    return entries;
  }
  std::vector<std::int64_t> steps_of(const std::string& event) const {
    std::vector<std::int64_t> steps;
    for (const auto& entry : entries(event)) steps.push_back(entry.at("step").get<std::int64_t>());
    return steps;
  }

  test::TemporaryFolder folder_;
  TrainConfig config_;
  Status status_;
  std::optional<RunLog> log_;
};

using Steps = std::vector<std::int64_t>;

// Only the lost rank 0 had received the sum over all ranks, so the other ranks repeat the evaluation.
TEST_F(RunLogTest, ARepeatedEvaluationIsLoggedOnce) {
  RunLog& lost = begins(0);
  lost.step({.step = 10, .loss = 1.0, .lr = 0.1});
  lost.evaluation(10, kResult);
  RunLog& successor = begins(10);
  successor.catch_up(StepMetrics{.step = 10, .loss = 1.0, .lr = 0.1}, std::nullopt);
  successor.evaluation(10, kResult);
  successor.evaluation(20, kResult);
  EXPECT_EQ(steps_of("eval"), (Steps{10, 20}));
  EXPECT_EQ(steps_of("step"), Steps{10});
}

TEST_F(RunLogTest, MissingRecordsAreAdded) {
  begins(0).step({.step = 9, .loss = 1.0, .lr = 0.1});
  begins(10).catch_up(StepMetrics{.step = 10, .loss = 1.0, .lr = 0.1}, StepEvaluation{.step = 10, .result = kResult});
  EXPECT_EQ(steps_of("eval"), Steps{10});
  EXPECT_EQ(steps_of("step"), (Steps{9, 10}));
}

TEST_F(RunLogTest, RecordsOfALostStepAreNotDuplicated) {
  RunLog& lost = begins(0);
  lost.step({.step = 9, .loss = 1.0, .lr = 0.1});
  lost.step({.step = 10, .loss = 1.0, .lr = 0.1});
  lost.evaluation(10, kResult);
  RunLog& successor = begins(9);
  successor.step({.step = 10, .loss = 1.0, .lr = 0.1});
  successor.evaluation(10, kResult);
  EXPECT_EQ(steps_of("eval"), Steps{10});
  EXPECT_EQ(steps_of("step"), (Steps{9, 10}));
}

// The logged rate is the rate of all workers together: samples per second times operations per sample. Utilization is this rate
// divided by the peak performance of all devices.
TEST_F(RunLogTest, LogsFlopsPerSecondAndUtilization) {
  RunLog& log = begins(0);
  EXPECT_FALSE(log.knows_flops());
  log.step({.step = 1, .loss = 1.0, .lr = 0.1});
  log.set_flops_per_sample(2e9);
  EXPECT_TRUE(log.knows_flops());
  log.step({.step = 2, .loss = 1.0, .lr = 0.1});
  log.set_peak_flops(1e15);
  log.step({.step = 3, .loss = 1.0, .lr = 0.1});
  log.set_flops_per_sample(0);  // a count of 0 (a model without matrix products) is not logged
  EXPECT_TRUE(log.knows_flops());
  log.step({.step = 4, .loss = 1.0, .lr = 0.1});
  const auto steps = entries("step");
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_FALSE(steps[0].contains("flops_per_s") || steps[0].contains("skipped_steps") ||
               steps[0].contains("peak_memory_bytes"));
  EXPECT_DOUBLE_EQ(steps[1].at("flops_per_s").get<double>(), 2e9 * steps[1].at("samples_per_s").get<double>());
  EXPECT_FALSE(steps[1].contains("mfu"));
  EXPECT_DOUBLE_EQ(steps[2].at("mfu").get<double>(), steps[2].at("flops_per_s").get<double>() / 1e15);
  EXPECT_FALSE(steps[3].contains("flops_per_s") || steps[3].contains("mfu"));
}

}  // namespace
}  // namespace ddprun::trainer
