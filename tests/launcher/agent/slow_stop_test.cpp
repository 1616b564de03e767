// Tests the deadlines for workers that exit slowly or cannot be killed. The timers are real, with short limits. The process of
// the test acts as a worker that does not exit.
#include "launcher/agent/slow_stop.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

class SlowStopTest : public testing::Test, private SlowStop::Agent {
 protected:
  SlowStop make(milliseconds unkillable = milliseconds(1)) {
    return {io_, {.slow = milliseconds(1), .unkillable = unkillable, .starting = starting_, .repeat = milliseconds(1)}, *this};
  }
  std::vector<pid_t> worker_pids() const override { return pids_; }
  void report_slow_stop(double /*seconds*/, std::vector<StopIsSlow::Awaited> awaited) override {
    slow_.push_back(std::move(awaited));
  }
  void feed(const AgentEvent& event) override { stuck_.push_back(std::get<agent_event::WorkerStuck>(event)); }
  void interrupt(int rank) override { interrupted_.push_back(rank); }

  boost::asio::io_context io_{1};
  std::vector<pid_t> pids_{0, ::getpid()};
  std::chrono::hours starting_{1};
  std::vector<int> interrupted_;
  std::vector<std::vector<StopIsSlow::Awaited>> slow_;
  std::vector<agent_event::WorkerStuck> stuck_;
};

TEST_F(SlowStopTest, ASlowWorkerIsReportedOnceWithItsState) {
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

TEST_F(SlowStopTest, AnOrderlyRoundReportsNothing) {
  SlowStop stop = make();
  stop.stops();
  stop.killed({0, 1});
  stop.begin_round();
  io_.run();
  EXPECT_TRUE(slow_.empty());
  EXPECT_TRUE(stuck_.empty());
}

TEST_F(SlowStopTest, AWorkerThatSurvivesSigkillIsUnkillable) {
  SlowStop stop = make();
  stop.killed({0, 1});
  io_.run();
  ASSERT_EQ(stuck_.size(), 1u) << "rank 0 has ended";
  EXPECT_EQ(stuck_[0].rank, 1);
  EXPECT_EQ(stuck_[0].pid, ::getpid());
  EXPECT_NE(stuck_[0].message.find("cannot be killed: it still exists "), std::string::npos) << stuck_[0].message;
}

// With --recovery live, a killed worker is replaced and the round continues. The replacement has received no signal, so it must
// not count as stuck.
TEST_F(SlowStopTest, AReplacementIsNotTheKilledWorker) {
  SlowStop stop = make();
  pids_[1] = 1;
  stop.killed({1});
  pids_[1] = ::getpid();
  io_.run();
  EXPECT_TRUE(stuck_.empty());
}

TEST_F(SlowStopTest, EachWorkerHasItsOwnDeadlineAfterSigkill) {
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

TEST_F(SlowStopTest, ASigintDuringStartIsRepeated) {
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
