// Tests how StragglerMonitor combines step times from workers with system counters. The test provides the step times
// and the counters. tests/whole_program/test_stragglers.py tests whole programs.
#include "launcher/stragglers/straggler_monitor.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include <nlohmann/json.hpp>

#include "tests/launcher/observed.hpp"

namespace ddprun {
namespace {

class StragglerMonitorTest : public testing::Test {
 protected:
  void begin(StragglerMonitor& monitor, int group_rank = 0, int nodes = 1) {
    monitor.on(RoundStarted{.round = 0,
                            .restart_count = 0,
                            .world_size = 2,
                            .time_ns = 0,
                            .workers_here = 2 / nodes,
                            .group_rank = group_rank,
                            .nodes = nodes});
  }
  static void start(StragglerMonitor& monitor, int rank) { monitor.on(WorkerStarted{rank, 0, 100 + rank, 0}); }
  // Reports five steps of a rank. A slow rank computes for 60 ms per step, and any other rank for 20 ms.
  static void report(StragglerMonitor& monitor, int rank, std::int64_t step, bool slow) {
    channel::Pace pace;
    for (std::int64_t i = 0; i < 5; ++i) {
      pace.times.push_back({.step = step + i, .own_us = slow ? 60'000 : 20'000, .waiting_us = slow ? 1'000 : 41'000});
    }
    monitor.on(WorkerReported{rank, pace, 0});
  }

  std::vector<Straggler> found_;
  std::map<pid_t, ProcessLoad> loads_;
  StragglerMonitor::Publish publish_ = [this](const Straggler& finding) { found_.push_back(finding); };
  bool at_disk_ = false;
  StragglerMonitor::System system_{.load = [this](pid_t pid) { return loads_[pid]; },
                                   .waits_for_disk = [this](pid_t) { return at_disk_; }};
  boost::asio::io_context io_{1};
  Observed<StragglerMonitor> monitor_{io_, publish_, system_};
};

TEST_F(StragglerMonitorTest, SystemCountersBelongToTheReportedSteps) {
  begin(monitor_);
  for (const int rank : {0, 1}) start(monitor_, rank);
  for (std::int64_t step = 1; step <= 21; step += 5) {
    loads_[101].queued_s += 5 * 0.039;
    loads_[101].ran_s += 5 * 0.020;
    loads_[100].ran_s += 5 * 0.020;
    report(monitor_, 0, step, false);
    report(monitor_, 1, step, true);
  }
  ASSERT_EQ(found_.size(), 1U);
  EXPECT_EQ(found_[0].rank, 1);
  EXPECT_EQ(found_[0].pid, 101);
  EXPECT_EQ(found_[0].kind, StragglerKind::kProcessor);
  EXPECT_GT(found_[0].time_ns, 0);
}

TEST_F(StragglerMonitorTest, StoppedTimeIsProcessorDelay) {
  begin(monitor_);
  for (const int rank : {0, 1}) start(monitor_, rank);
  for (std::int64_t step = 1; step <= 21; step += 5) {
    monitor_.on(WorkerContinued{1, 5 * 0.040, 0});
    report(monitor_, 0, step, false);
    report(monitor_, 1, step, true);
  }
  ASSERT_EQ(found_.size(), 1U);
  EXPECT_EQ(found_[0].kind, StragglerKind::kProcessor);
}

// The slow rank sleeps, and no kernel counter shows the reason. So the monitor samples the state of that rank's process
// before it reports the rank.
TEST_F(StragglerMonitorTest, ASleepingSuspectIsSampledFirst) {
  for (const bool at_disk : {true, false}) {
    at_disk_ = at_disk;
    found_.clear();
    begin(monitor_);
    for (const int rank : {0, 1}) start(monitor_, rank);
    for (std::int64_t step = 1; step <= 21; step += 5) {
      loads_[100].ran_s += 5 * 0.020;
      loads_[101].ran_s += 5 * 0.020;
      report(monitor_, 0, step, false);
      report(monitor_, 1, step, true);
    }
    EXPECT_TRUE(found_.empty()) << "it is looked at";
    io_.restart();
    if (at_disk) {
      io_.run();
    } else {
      monitor_.on(WorkerEnded{1, 101, {}, false, 0});
    }
    ASSERT_EQ(found_.size(), 1U);
    EXPECT_EQ(found_[0].kind, at_disk ? StragglerKind::kDisk : StragglerKind::kCompute);
    EXPECT_EQ(found_[0].rank, 1);
  }
}

// Rank 1 runs on another node, so rank 0's node receives the step times of rank 1 only in answer to a query.
TEST_F(StragglerMonitorTest, RankZerosNodeQueriesTheOthersAndJudges) {
  Observed<StragglerMonitor> other(io_, publish_, system_);
  int queries = 0;
  monitor_.set_query([&queries] { ++queries; });
  other.set_query([] { FAIL() << "only one node judges"; });
  begin(monitor_, 0, 2);
  begin(other, 1, 2);
  start(monitor_, 0);
  start(other, 1);
  for (std::int64_t step = 1; step <= 21; step += 5) {
    report(other, 1, step, true);
    report(monitor_, 0, step, false);
    monitor_.receive(other.take_reports(64 << 10));
  }
  EXPECT_EQ(queries, 1) << "the question is not answered yet";
  ASSERT_EQ(found_.size(), 1U);
  EXPECT_EQ(found_[0].rank, 1);
  EXPECT_EQ(found_[0].pid, 0) << "of another node";
  EXPECT_EQ(other.take_reports(64 << 10)["paces"], nlohmann::json::array()) << "each is reported once";
}

TEST_F(StragglerMonitorTest, ABoundedAnswerKeepsTheNewestReports) {
  Observed<StragglerMonitor> other(io_, publish_, system_);
  begin(other, 1, 2);
  start(other, 1);
  report(other, 1, 1, true);
  report(other, 1, 6, true);
  report(other, 1, 11, true);
  const nlohmann::json reports = other.take_reports(600)["paces"];
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[1][1], 15);
  EXPECT_LE(reports.dump().size(), 600U);
}

TEST_F(StragglerMonitorTest, MalformedAnswersAreIgnored) {
  begin(monitor_, 0, 2);
  for (const char* const text : {"{}", "[1]", "[[1,2,3]]", "[[1,2,3,4,5,6,7,8,9,\"x\"]]", "[[1.5,2,3,4,5,6,7,8,9,10]]",
                                 "[[99999999999,2,3,4,5,6,7,8,9,10]]", "null"}) {
    monitor_.receive(nlohmann::json::parse(text));
    monitor_.receive({{"paces", nlohmann::json::parse(text)}, {"links", nlohmann::json::parse(text)}});
  }
  monitor_.on(WorkerReported{7, channel::Pace{.times = {{.step = 1}}}, 0});  // a report about an unknown rank must be ignored
  start(monitor_, 0);
  monitor_.on(WorkerReported{0, channel::Pace{}, 0});
  monitor_.on(WorkerReported{0, channel::Pace{.times = {{.step = 1, .steps = 0}}}, 0});
  EXPECT_TRUE(found_.empty());
}

TEST(ProcessLoad, DiskDelayIsField42) {
  std::string stat = "17 (a (b) c) S";
  for (int field = 4; field <= 41; ++field) stat += ' ' + std::to_string(field);
  const double ticks_a_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_EQ(disk_seconds_of(stat + " 1234 43\n"), 1234 / ticks_a_second);
  EXPECT_EQ(disk_seconds_of(stat), 0);
  EXPECT_EQ(disk_seconds_of("17"), 0);
  EXPECT_EQ(disk_seconds_of(""), 0);
}

TEST(ProcessLoad, OfThisProcessAndOfNone) {
  const double before = load_of_process(::getpid()).ran_s;
  while (load_of_process(::getpid()).ran_s <= before + 0.001) {
  }
  EXPECT_EQ(load_of_process(0).ran_s, 0);
  EXPECT_FALSE(waits_for_disk(::getpid()));
  EXPECT_FALSE(waits_for_disk(0));
}

}  // namespace
}  // namespace ddprun
