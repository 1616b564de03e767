// Tests when the agent writes the lines with a script's metrics, and which lines it drops if the disk is slow.
// tests/whole_program/test_script_metrics.py tests the content of the files.
#include "launcher/report/script_metrics.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using test::TemporaryFolder;

class ScriptMetricsTest : public testing::Test {
 protected:
  // Collects the callbacks of the queue's thread, which run at the end of the test.
  std::vector<FileQueue::Work> later_;
  std::mutex mutex_;
  FileQueue queue_{[this](FileQueue::Work then) {
    const std::lock_guard lock(mutex_);
    later_.push_back(std::move(then));
  }};
  TemporaryFolder folder_;
  std::vector<std::string> problems_;
  ScriptMetrics metrics_{folder_.path(), queue_, [this](const std::string& text) { problems_.push_back(text); }};

  void round() { metrics_.on(RoundStarted{.round = 0, .restart_count = 0, .world_size = 2, .time_ns = 1}); }
  void report(channel::Progress progress, int rank = 0) { metrics_.on(WorkerReported{rank, std::move(progress), ++time_}); }
  void ended() { metrics_.on(WorkerEnded{0, 1, ExitStatus{}, false, ++time_}); }
  std::vector<std::int64_t> steps() {
    queue_.finish();
    std::vector<std::int64_t> steps;
    std::ifstream in(folder_ / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record["event"] == "step") steps.push_back(record["step"]);
    }
    return steps;
  }
  std::int64_t time_ = 1;
};

using Steps = std::vector<std::int64_t>;

TEST_F(ScriptMetricsTest, ALineIsWrittenAtTheNextStepOrEnd) {
  round();
  report({.step = 1, .loss = 1.0});
  EXPECT_EQ(steps(), Steps{});
  report({.step = 2});
  EXPECT_EQ(steps(), Steps{1});
  report({.step = 2, .loss = 0.5});
  EXPECT_EQ(steps(), Steps{1});
  ended();
  EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST_F(ScriptMetricsTest, OtherRanksAndEmptyStepsWriteNoLine) {
  round();
  report({.step = 1, .loss = 1.0}, 1);
  report({.step = 1});
  report({.step = 2});
  ended();
  EXPECT_EQ(steps(), Steps{});
}

TEST_F(ScriptMetricsTest, LinesWaitingForASlowDiskAreLimited) {
  std::promise<void> disk_continues;
  queue_.add([&disk_continues] { disk_continues.get_future().wait(); });
  round();
  const auto many = static_cast<std::int64_t>(ScriptMetrics::kMaxWaiting) + 100;
  for (std::int64_t step = 1; step <= many; ++step) report({.step = step, .loss = 1.0});
  ended();
  disk_continues.set_value();
  const Steps written = steps();
  EXPECT_LE(written.size(), ScriptMetrics::kMaxWaiting);
  EXPECT_GE(written.size(), ScriptMetrics::kMaxWaiting - 1);
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_NE(problems_[0].find("some steps will be missing in metrics.jsonl"), std::string::npos);
}

// This test never runs the queue's callbacks, as if the agent's event loop had already ended. Even in this case, the problem
// must be reported.
TEST_F(ScriptMetricsTest, AProblemAtTheEndIsReported) {
  std::filesystem::create_directory(folder_ / "metrics.jsonl");
  round();
  report({.step = 1, .loss = 1.0});
  ended();
  metrics_.on(RunEnded{});
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_NE(problems_[0].find("metrics.jsonl"), std::string::npos) << problems_[0];
}

}  // namespace
}  // namespace ddprun
