// Tests two facts that are read from the files of a run: how often the run failed, and whether it has a state that must be
// kept.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/common/temporary_folder.hpp"
#include "trainer/failure/failure_history.hpp"
#include "trainer/resume/kept_history.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::read_text;
using test::TemporaryFolder;
using test::write_text;

std::string record(const char* event, std::int64_t second) {
  return "{\"event\":\"" + std::string(event) + "\",\"time_ns\":" + std::to_string(second * 1'000'000'000) + "}\n";
}

FailureHistory history_of(const std::string& text) {
  std::istringstream in(text);
  return read_failure_history(in);
}

TEST(FailureHistory, ARunWithoutFailuresCountsItsTime) {
  const FailureHistory history = history_of(record("step", 100) + record("eval", 130) + record("end", 160));
  EXPECT_EQ(history.failures, 0);
  EXPECT_DOUBLE_EQ(history.seconds, 60);
}

TEST(FailureHistory, CountsRestartsWithoutTheTimeBetweenProcesses) {
  const FailureHistory history = history_of(record("step", 0) + record("step", 50) + record("restart", 200) +
                                            record("step", 210) + record("restart", 900));
  EXPECT_EQ(history.failures, 2);
  EXPECT_DOUBLE_EQ(history.seconds, 60);
}

TEST(FailureHistory, AStartAfterAnUncleanEndIsAFailure) {
  EXPECT_EQ(history_of(record("step", 0) + record("resume", 9)).failures, 1);
  EXPECT_EQ(history_of(record("step", 0) + record("end", 1) + record("resume", 9)).failures, 0) << "preempted, or more epochs";
}

TEST(FailureHistory, IgnoresOtherLinesAndClockChanges) {
  const FailureHistory history =
      history_of("garbage\n[]\n{\"event\":7}\n" + record("step", 100) + record("step", 40) + record("step", 50));
  EXPECT_EQ(history.failures, 0);
  EXPECT_DOUBLE_EQ(history.seconds, 10);
  EXPECT_EQ(read_failure_history(fs::path("/nowhere/metrics.jsonl")).failures, 0);
}

TEST(KeptHistory, RenamesAllFiles) {
  TemporaryFolder folder;
  const RunLayout layout{.root = folder.path()};
  const std::string figures = record("step", 1) + record("checkpoint", 2);
  write_text(layout.metrics(), figures);
  write_text(layout.ledger() / "rank-00000.jsonl", "x");
  write_text(layout.tensorboard() / "events", "y");
  EXPECT_EQ(archive_orphaned_history(layout).size(), 3U);
  EXPECT_EQ(read_text(folder / "metrics.jsonl.1"), figures);
  EXPECT_TRUE(fs::exists(folder / "ledger.1/rank-00000.jsonl") && fs::exists(folder / "tensorboard.1/events"));
  EXPECT_FALSE(fs::exists(layout.metrics()) || fs::exists(layout.ledger()) || fs::exists(layout.tensorboard()));

  write_text(layout.metrics(), record("checkpoint", 3));
  EXPECT_EQ(archive_orphaned_history(layout), std::vector<fs::path>{folder / "metrics.jsonl.2"});
  EXPECT_EQ(read_text(folder / "metrics.jsonl.1"), figures) << "nothing is overwritten";
}

TEST(KeptHistory, RenamesNothingWithoutACheckpoint) {
  TemporaryFolder folder;
  const RunLayout layout{.root = folder.path()};
  EXPECT_TRUE(archive_orphaned_history(layout).empty());
  write_text(layout.metrics(), record("step", 1) + "{\"event\":\"warning\",\"message\":\"the \\\"checkpoint\\\" failed\"}\n");
  EXPECT_TRUE(archive_orphaned_history(layout).empty());
  EXPECT_TRUE(fs::exists(layout.metrics()));
}

}  // namespace
}  // namespace ddprun::trainer
