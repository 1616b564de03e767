// Waits for workers that end slowly or cannot be killed: real timers with short limits. This process plays a worker that does
// not end.
#include "launcher/agent/slow_stop.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

class SlowStopTest : public testing::Test {
 protected:
  SlowStop make(milliseconds unkillable = milliseconds(1)) {
    SlowStop::Hooks hooks;
    hooks.workers = [this] { return pids_; };
    hooks.slow = [this](double, std::vector<StopIsSlow::Awaited> awaited) { slow_.push_back(std::move(awaited)); };
    hooks.cannot_be_killed = [this](const agent_event::WorkerStuck& stuck) { stuck_.push_back(stuck); };
    hooks.interrupt = [this](int rank) { interrupted_.push_back(rank); };
    return {io_,
            {.slow = milliseconds(1), .unkillable = unkillable, .starting = starting_, .repeat = milliseconds(1)},
            std::move(hooks)};
  }
  boost::asio::io_context io_{1};
  std::vector<pid_t> pids_{0, ::getpid()};
  std::chrono::hours starting_{1};
  std::vector<int> interrupted_;
  std::vector<std::vector<StopIsSlow::Awaited>> slow_;
  std::vector<agent_event::WorkerStuck> stuck_;
};

TEST_F(SlowStopTest, WhoHasNotEndedIsNamedOnceWithWhatTheKernelSaysOfIt) {
  SlowStop stop = make();
  stop.stops();
  stop.stops();
  io_.run();
  ASSERT_EQ(slow_.size(), 1u);
  ASSERT_EQ(slow_[0].size(), 1u);
  EXPECT_EQ(slow_[0][0].rank, 1);
  EXPECT_EQ(slow_[0][0].pid, ::getpid());
  EXPECT_NE(slow_[0][0].summary.find("state "), std::string::npos);
}

TEST_F(SlowStopTest, ARoundThatEndsInTimeSaysNothing) {
  SlowStop stop = make();
  stop.stops();
  stop.killed({0, 1});
  stop.begin_round();
  io_.run();
  EXPECT_TRUE(slow_.empty());
  EXPECT_TRUE(stuck_.empty());
}

TEST_F(SlowStopTest, WhoIsThereLongAfterSigkillCannotBeKilled) {
  SlowStop stop = make();
  stop.killed({0, 1});
  io_.run();
  ASSERT_EQ(stuck_.size(), 1u) << "rank 0 has ended";
  EXPECT_EQ(stuck_[0].rank, 1);
  EXPECT_EQ(stuck_[0].pid, ::getpid());
  EXPECT_NE(stuck_[0].message.find("cannot be killed: state "), std::string::npos) << stuck_[0].message;
}

// With --recovery live the round continues while a killed worker is replaced: the replacement was sent no signal.
TEST_F(SlowStopTest, TheSuccessorOfAKilledOneIsNotTakenForIt) {
  SlowStop stop = make();
  pids_[1] = 1;
  stop.killed({1});
  pids_[1] = ::getpid();
  io_.run();
  EXPECT_TRUE(stuck_.empty());
}

TEST_F(SlowStopTest, EachHasTimeFromItsOwnSigkillOn) {
  SlowStop stop = make(milliseconds(200));
  pids_ = {::getpid(), ::getppid()};
  stop.killed({0});
  io_.run_for(milliseconds(100));
  stop.killed({1});
  io_.run_one();
  ASSERT_EQ(stuck_.size(), 1u);
  EXPECT_EQ(stuck_[0].rank, 0);
  io_.run();
  ASSERT_EQ(stuck_.size(), 2u);
  EXPECT_EQ(stuck_[1].rank, 1);
}

TEST_F(SlowStopTest, ASigintWhileAWorkerStartsIsRepeatedForWhoIsStillThere) {
  SlowStop stop = make();
  stop.interrupted();
  io_.run();
  EXPECT_EQ(interrupted_, std::vector<int>{1}) << "once, and rank 0 has ended";

  starting_ = std::chrono::hours(0);
  SlowStop later = make();
  later.interrupted();
  io_.restart();
  io_.run();
  EXPECT_EQ(interrupted_.size(), 1u) << "a script that runs may be cleaning up";
}

TEST_F(SlowStopTest, ASigintIsNotRepeatedInTheNextRound) {
  SlowStop stop = make();
  stop.interrupted();
  stop.begin_round();
  io_.run();
  EXPECT_TRUE(interrupted_.empty());
}

}  // namespace
}  // namespace ddprun
