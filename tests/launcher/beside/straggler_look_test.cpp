// How StragglerLook evaluates workers' messages and the system's counters; test_stragglers.py tests whole programs.
#include "launcher/beside/straggler_look.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

class StragglerLookTest : public testing::Test {
 protected:
  void begin(StragglerLook& look, int group_rank = 0, int nodes = 1) {
    look.on(RoundStarted{.round = 0,
                         .restart_count = 0,
                         .world_size = 2,
                         .time_ns = 0,
                         .workers_here = 2 / nodes,
                         .group_rank = group_rank,
                         .nodes = nodes});
  }
  static void start(StragglerLook& look, int rank) { look.on(WorkerStarted{rank, 0, 100 + rank, 0}); }
  // Five steps of a rank that takes 20 ms per step, or 60 ms.
  static void tell(StragglerLook& look, int rank, std::int64_t step, bool slow) {
    channel::Pace pace;
    for (std::int64_t i = 0; i < 5; ++i) {
      pace.times.push_back({.step = step + i, .own_us = slow ? 60'000 : 20'000, .waiting_us = slow ? 1'000 : 41'000});
    }
    look.on(WorkerSpoke{rank, pace, 0});
  }

  std::vector<Straggler> found_;
  std::map<pid_t, ProcessLoad> loads_;
  StragglerLook::Publish publish_ = [this](const Straggler& finding) { found_.push_back(finding); };
  bool at_disk_ = false;
  StragglerLook::System system_{.load = [this](pid_t pid) { return loads_[pid]; },
                                .waits_for_disk = [this](pid_t) { return at_disk_; }};
  boost::asio::io_context io_{1};
  StragglerLook look_{io_, publish_, system_};
};

TEST_F(StragglerLookTest, WhatTheSystemCountsBelongsToTheStepsOfTheMessage) {
  begin(look_);
  for (const int rank : {0, 1}) start(look_, rank);
  for (std::int64_t step = 1; step <= 21; step += 5) {
    loads_[101].queued_s += 5 * 0.039;
    loads_[101].ran_s += 5 * 0.020;
    loads_[100].ran_s += 5 * 0.020;
    tell(look_, 0, step, false);
    tell(look_, 1, step, true);
  }
  ASSERT_EQ(found_.size(), 1U);
  EXPECT_EQ(found_[0].rank, 1);
  EXPECT_EQ(found_[0].pid, 101);
  EXPECT_EQ(found_[0].kind, StragglerKind::kProcessor);
  EXPECT_GT(found_[0].time_ns, 0);
}

TEST_F(StragglerLookTest, AWorkerThatWasStoppedHadNoProcessor) {
  begin(look_);
  for (const int rank : {0, 1}) start(look_, rank);
  for (std::int64_t step = 1; step <= 21; step += 5) {
    look_.on(WorkerContinued{1, 5 * 0.040, 0});
    tell(look_, 0, step, false);
    tell(look_, 1, step, true);
  }
  ASSERT_EQ(found_.size(), 1U);
  EXPECT_EQ(found_[0].kind, StragglerKind::kProcessor);
}

// The rank sleeps, and the kernel does not report the reason.
TEST_F(StragglerLookTest, WhoSleepsIsLookedAtBeforeItIsNamed) {
  for (const bool at_disk : {true, false}) {
    at_disk_ = at_disk;
    found_.clear();
    begin(look_);
    for (const int rank : {0, 1}) start(look_, rank);
    for (std::int64_t step = 1; step <= 21; step += 5) {
      loads_[100].ran_s += 5 * 0.020;
      loads_[101].ran_s += 5 * 0.020;
      tell(look_, 0, step, false);
      tell(look_, 1, step, true);
    }
    EXPECT_TRUE(found_.empty()) << "it is looked at";
    io_.restart();
    if (at_disk) {
      io_.run();
    } else {
      look_.on(WorkerEnded{1, 101, {}, false, 0});
    }
    ASSERT_EQ(found_.size(), 1U);
    EXPECT_EQ(found_[0].kind, at_disk ? StragglerKind::kDisk : StragglerKind::kCompute);
    EXPECT_EQ(found_[0].rank, 1);
  }
}

// Rank 1 is on another node: its reports arrive here after a query.
TEST_F(StragglerLookTest, TheNodeOfRankZeroJudgesAndAsksTheOthers) {
  StragglerLook other(io_, publish_, system_);
  int asked = 0;
  look_.asks_by([&asked] { ++asked; });
  other.asks_by([] { FAIL() << "only one node judges"; });
  begin(look_, 0, 2);
  begin(other, 1, 2);
  start(look_, 0);
  start(other, 1);
  for (std::int64_t step = 1; step <= 21; step += 5) {
    tell(other, 1, step, true);
    tell(look_, 0, step, false);
    look_.hear(other.told(64 << 10));
  }
  EXPECT_EQ(asked, 1) << "the question is not answered yet";
  ASSERT_EQ(found_.size(), 1U);
  EXPECT_EQ(found_[0].rank, 1);
  EXPECT_EQ(found_[0].pid, 0) << "of another node";
  EXPECT_EQ(other.told(64 << 10)["paces"], nlohmann::json::array()) << "each is told once";
}

TEST_F(StragglerLookTest, AnAnswerHasRoomForTheNewest) {
  StragglerLook other(io_, publish_, system_);
  begin(other, 1, 2);
  start(other, 1);
  tell(other, 1, 1, true);
  tell(other, 1, 6, true);
  tell(other, 1, 11, true);
  const nlohmann::json told = other.told(600)["paces"];
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[1][1], 15);
  EXPECT_LE(told.dump().size(), 600U);
}

TEST_F(StragglerLookTest, AnswersThatAreNoneChangeNothing) {
  begin(look_, 0, 2);
  for (const char* const text : {"{}", "[1]", "[[1,2,3]]", "[[1,2,3,4,5,6,7,8,9,\"x\"]]", "[[1.5,2,3,4,5,6,7,8,9,10]]",
                                 "[[99999999999,2,3,4,5,6,7,8,9,10]]", "null"}) {
    look_.hear(nlohmann::json::parse(text));
    look_.hear({{"paces", nlohmann::json::parse(text)}, {"links", nlohmann::json::parse(text)}});
  }
  look_.on(WorkerSpoke{7, channel::Pace{.times = {{.step = 1}}}, 0});  // about an unknown rank
  start(look_, 0);
  look_.on(WorkerSpoke{0, channel::Pace{}, 0});
  look_.on(WorkerSpoke{0, channel::Pace{.times = {{.step = 1, .steps = 0}}}, 0});
  EXPECT_TRUE(found_.empty());
}

TEST(ProcessLoad, TheDelayOfDisksIsTheFortySecondField) {
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
