// Tests HangState. Each test feeds messages and counters, and compares the queries and findings, which are written as text.
#include "launcher/hang/hang_state.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/overloaded.hpp"

namespace ddprun {
namespace {

using channel::Stage;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Lines = std::vector<std::string>;

class HangStateTest : public testing::Test {
 protected:
  void job(bool channel, int workers, bool many_nodes = false) {
    HangSettings settings{.channel = channel, .answer_time = seconds(2)};
    settings.limits.watch = true;
    settings.limits.given.fill(seconds(60));
    state_.emplace(settings);
    view_.matters = true;
    view_.workers.clear();
    for (int rank = 0; rank < workers; ++rank) view_.workers.push_back({.pid = 100 + rank, .state = 'S'});
    lines(state_->begin_round({.workers = workers, .rank_offset = 0, .many_nodes = many_nodes}, now_));
  }
  Lines lines(const HangState::Actions& actions) {
    Lines text;
    for (const HangAction& action : actions) {
      std::visit(
          Overloaded{[&](const hang_action::SetTimer& timer) { timer_ = timer.at; },
                     [&](const hang_action::CancelTimer&) { timer_.reset(); },
                     [&](const hang_action::QueryPosition& query) { text.push_back("query " + std::to_string(query.rank)); },
                     [&](const hang_action::ReadStack& read) {
                       text.push_back("stack of " + std::to_string(read.pid) + " in " + std::to_string(read.at_most.count()));
                     },
                     [&](const hang_action::StopReading&) {},
                     [&](const hang_action::ReportHang& report) {
                       reported_ = report.findings;
                       text.push_back("report");
                     }},
          action);
    }
    return text;
  }
  // Advances the time to the timer's deadline, and fires the timer.
  Lines timer() {
    EXPECT_TRUE(timer_.has_value());
    now_ = std::max(now_, timer_.value_or(now_));
    return lines(state_->timer_fired(view_, now_));
  }
  Lines answers(int rank, std::int64_t step, Stage stage) {
    return lines(
        state_->on_message(rank, channel::Position{.phase = channel::Phase::kRunning, .step = step, .stage = stage}, now_));
  }
  Lines progress(int rank, std::int64_t step) { return lines(state_->on_message(rank, channel::Progress{.step = step}, now_)); }

  std::optional<HangState> state_;
  HangView view_;
  HangState::Time now_{};
  std::optional<HangState::Time> timer_;
  std::vector<hang_action::ReportHang::Finding> reported_;
};

TEST_F(HangStateTest, TheRankBehindIsTheCulprit) {
  job(true, 2);
  EXPECT_EQ(timer(), (Lines{"query 0", "query 1"}));
  EXPECT_EQ(now_, HangState::Time(seconds(60)));
  EXPECT_EQ(answers(0, 18, Stage::kBackward), Lines{});
  EXPECT_EQ(answers(1, 17, Stage::kLoading), Lines{});
  EXPECT_EQ(timer(), Lines{"stack of 101 in 10000"});  // without a delay: the culprit's stack is read first
  EXPECT_EQ(now_, HangState::Time(seconds(60)));
  EXPECT_EQ(lines(state_->stack_read({"main"}, now_)), Lines{"stack of 100 in 10000"});
  EXPECT_EQ(lines(state_->stack_read({"wait"}, now_)), Lines{"report"});
  ASSERT_EQ(reported_.size(), 2u);
  EXPECT_FALSE(reported_[0].blame);
  EXPECT_EQ(reported_[0].where, "rank 0: in the all-reduce of the gradients of step 19; ");
  EXPECT_EQ(reported_[0].stack, Lines{"wait"});
  ASSERT_TRUE(reported_[1].blame);
  EXPECT_TRUE(reported_[1].blame->starts_with("hangs: no progress for ")) << *reported_[1].blame;
  EXPECT_EQ(reported_[1].stack, Lines{"main"});
}

TEST_F(HangStateTest, AnUnresponsiveRankIsTheCulpritAfterTheTimeout) {
  job(true, 2);
  timer();
  answers(0, 18, Stage::kBackward);
  EXPECT_EQ(timer(), Lines{"stack of 101 in 10000"});
  EXPECT_EQ(now_, HangState::Time(seconds(62)));
  EXPECT_EQ(lines(state_->cannot_read_stacks()), Lines{"report"});
  EXPECT_EQ(reported_[1].where, "rank 1: no answer; ");
  EXPECT_TRUE(reported_[1].blame);
}

TEST_F(HangStateTest, AStoppedProcessIsNotAwaited) {
  job(true, 1);
  view_.workers[0].state = 'T';
  EXPECT_EQ(timer(), Lines{"query 0"});
  EXPECT_EQ(timer(), Lines{"stack of 100 in 10000"});
  EXPECT_EQ(now_, HangState::Time(seconds(60)));
}

TEST_F(HangStateTest, ProgressBeforeTheVerdictEndsTheInquiry) {
  job(true, 2);
  timer();
  answers(0, 18, Stage::kBackward);
  now_ += seconds(1);
  progress(1, 18);
  answers(1, 18, Stage::kForward);
  EXPECT_EQ(timer(), Lines{});
  EXPECT_EQ(timer_, HangState::Time(seconds(121)));  // 60 s after the step that was reported at 61 s
}

TEST_F(HangStateTest, NoQueriesWhileIrrelevantOrWithoutWorkers) {
  job(true, 1);
  view_.matters = false;
  EXPECT_EQ(timer(), Lines{});
  view_.matters = true;
  view_.workers[0].pid = 0;
  EXPECT_EQ(timer(), Lines{});
  view_.workers[0].pid = 100;
  EXPECT_EQ(timer(), Lines{"query 0"});
  EXPECT_EQ(now_, HangState::Time(seconds(180)));
}

TEST_F(HangStateTest, ALateTimerExcusesTheWorkers) {
  job(true, 1);
  now_ = *timer_ + seconds(5);  // the agent was suspended, so its timer fires late
  EXPECT_EQ(lines(state_->timer_fired(view_, now_)), Lines{});
  EXPECT_EQ(timer_, now_ + seconds(60));
}

TEST_F(HangStateTest, IfAllWaitAnotherNodeGetsTime) {
  job(true, 1, true);
  timer();
  answers(0, 18, Stage::kBackward);
  EXPECT_EQ(timer(), Lines{});
  EXPECT_GE(*timer_, now_ + seconds(15));  // during this time, the other node's agent reads stacks
  EXPECT_EQ(timer(), Lines{"query 0"});
  answers(0, 18, Stage::kBackward);
  EXPECT_EQ(timer(), Lines{"stack of 100 in 10000"});
}

TEST_F(HangStateTest, GrowingOutputFilesAreProgress) {
  job(false, 1);
  view_.bytes_in_files = 10;
  EXPECT_EQ(timer(), Lines{});
  view_.bytes_in_files.reset();  // the size is unknown now, so the files may still be growing
  EXPECT_EQ(timer(), Lines{});
  view_.bytes_in_files = 10;
  EXPECT_EQ(timer(), Lines{});  // no query, because the rank has reported no step
  EXPECT_EQ(timer(), Lines{"stack of 100 in 10000"});
}

TEST_F(HangStateTest, AtMostFourStacksAreReadInTime) {
  job(true, 6);
  timer();
  timer();  // the time for answers is over, and no worker has answered
  now_ += seconds(9);
  EXPECT_EQ(lines(state_->stack_read({}, now_)), Lines{"stack of 101 in 6000"});
  now_ += seconds(6);
  EXPECT_EQ(lines(state_->stack_read({}, now_)), Lines{"report"});
  job(true, 6);
  timer();
  timer();
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(lines(state_->stack_read({}, now_)).size(), 1u);
  EXPECT_EQ(lines(state_->stack_read({}, now_)), Lines{"report"});
}

TEST_F(HangStateTest, AHangIsReportedOncePerRound) {
  job(true, 1);
  timer();
  timer();
  lines(state_->cannot_read_stacks());
  EXPECT_EQ(lines(state_->timer_fired(view_, now_ + seconds(100))), Lines{});
  EXPECT_EQ(lines(state_->cannot_read_stacks()), Lines{});
  EXPECT_EQ(progress(0, 40), Lines{});
}

TEST_F(HangStateTest, EndOfRoundEndsTheInquiry) {
  job(true, 1);
  timer();
  lines(state_->end_round());
  EXPECT_FALSE(timer_.has_value());
  EXPECT_EQ(answers(0, 1, Stage::kLoading), Lines{});
  EXPECT_EQ(lines(state_->timer_fired(view_, now_)), Lines{});  // the timer's handler was already queued
}

}  // namespace
}  // namespace ddprun
