// When a line with a script's metrics is written, and which lines of a slow disk's backlog are dropped.
// tests/whole_program/test_script_figures.py tests the files themselves.
#include "launcher/report/script_figures.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using test::TemporaryFolder;

class ScriptFiguresTest : public testing::Test {
 protected:
  // Callbacks from the queue's thread run at the end of the test.
  std::vector<FileQueue::Work> later_;
  std::mutex mutex_;
  FileQueue queue_{[this](FileQueue::Work then) {
    const std::lock_guard lock(mutex_);
    later_.push_back(std::move(then));
  }};
  TemporaryFolder folder_;
  std::vector<std::string> said_;
  ScriptFigures figures_{folder_.path(), queue_, [this](const std::string& text) { said_.push_back(text); }};

  void round() { figures_.on(RoundStarted{.round = 0, .restart_count = 0, .world_size = 2, .time_ns = 1}); }
  void tell(channel::Progress progress, int rank = 0) { figures_.on(WorkerSpoke{rank, std::move(progress), ++time_}); }
  void ended() { figures_.on(WorkerEnded{0, 1, ExitStatus{}, false, ++time_}); }
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

TEST_F(ScriptFiguresTest, ALineWaitsForTheNextStepOrTheEnd) {
  round();
  tell({.step = 1, .loss = 1.0});
  EXPECT_EQ(steps(), Steps{});
  tell({.step = 2});
  EXPECT_EQ(steps(), Steps{1});
  tell({.step = 2, .loss = 0.5});
  EXPECT_EQ(steps(), Steps{1});
  ended();
  EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST_F(ScriptFiguresTest, OtherRanksAndStepsWithoutFiguresAreNoLines) {
  round();
  tell({.step = 1, .loss = 1.0}, 1);
  tell({.step = 1});
  tell({.step = 2});
  ended();
  EXPECT_EQ(steps(), Steps{});
}

TEST_F(ScriptFiguresTest, WhatWaitsForASlowDiskIsLimited) {
  std::promise<void> goes_on;
  queue_.add([&goes_on] { goes_on.get_future().wait(); });
  round();
  const auto many = static_cast<std::int64_t>(ScriptFigures::kMostWaiting) + 100;
  for (std::int64_t step = 1; step <= many; ++step) tell({.step = step, .loss = 1.0});
  ended();
  goes_on.set_value();
  const Steps written = steps();
  EXPECT_LE(written.size(), ScriptFigures::kMostWaiting);
  EXPECT_GE(written.size(), ScriptFigures::kMostWaiting - 1);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("metrics.jsonl will miss some steps"), std::string::npos);
}

// Callbacks from the queue's thread never run here, as after the end of the agent's loop.
TEST_F(ScriptFiguresTest, TroubleAtTheVeryEndIsSaid) {
  std::filesystem::create_directory(folder_ / "metrics.jsonl");
  round();
  tell({.step = 1, .loss = 1.0});
  ended();
  figures_.on(RunEnded{});
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("metrics.jsonl"), std::string::npos) << said_[0];
}

}  // namespace
}  // namespace ddprun
