// HangState: workers' reports and the system's counters go in; queries and findings come out as text.
#include "launcher/decide/hang_state.hpp"

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
                     [&](const hang_action::Ask& ask) { text.push_back("ask " + std::to_string(ask.rank)); },
                     [&](const hang_action::ReadStack& read) {
                       text.push_back("stack of " + std::to_string(read.pid) + " in " + std::to_string(read.at_most.count()));
                     },
                     [&](const hang_action::StopReading&) {},
                     [&](const hang_action::Tell& tell) {
                       told_ = tell.findings;
                       text.push_back("tell");
                     }},
          action);
    }
    return text;
  }
  // Advances the time until the timer fires.
  Lines timer() {
    EXPECT_TRUE(timer_.has_value());
    now_ = std::max(now_, timer_.value_or(now_));
    return lines(state_->timer_fired(view_, now_));
  }
  Lines answers(int rank, std::int64_t step, Stage stage) {
    return lines(state_->heard(rank, channel::Position{.phase = channel::Phase::kRunning, .step = step, .stage = stage}, now_));
  }
  Lines progress(int rank, std::int64_t step) { return lines(state_->heard(rank, channel::Progress{.step = step}, now_)); }

  std::optional<HangState> state_;
  HangView view_;
  HangState::Time now_{};
  std::optional<HangState::Time> timer_;
  std::vector<hang_action::Tell::Finding> told_;
};

TEST_F(HangStateTest, TheOneThatIsBehindIsToBlame) {
  job(true, 2);
  EXPECT_EQ(timer(), (Lines{"ask 0", "ask 1"}));
  EXPECT_EQ(now_, HangState::Time(seconds(60)));
  EXPECT_EQ(answers(0, 18, Stage::kBackward), Lines{});
  EXPECT_EQ(answers(1, 17, Stage::kLoading), Lines{});
  EXPECT_EQ(timer(), Lines{"stack of 101 in 10000"});  // immediately, and first the stack of the rank to blame
  EXPECT_EQ(now_, HangState::Time(seconds(60)));
  EXPECT_EQ(lines(state_->stack_read({"main"}, now_)), Lines{"stack of 100 in 10000"});
  EXPECT_EQ(lines(state_->stack_read({"wait"}, now_)), Lines{"tell"});
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_FALSE(told_[0].blame);
  EXPECT_EQ(told_[0].where, "rank 0: in the all-reduce of the gradients of step 19; ");
  EXPECT_EQ(told_[0].stack, Lines{"wait"});
  ASSERT_TRUE(told_[1].blame);
  EXPECT_TRUE(told_[1].blame->starts_with("hangs: no progress for ")) << *told_[1].blame;
  EXPECT_EQ(told_[1].stack, Lines{"main"});
}

TEST_F(HangStateTest, OneThatDoesNotAnswerIsWaitedForAndIsToBlame) {
  job(true, 2);
  timer();
  answers(0, 18, Stage::kBackward);
  EXPECT_EQ(timer(), Lines{"stack of 101 in 10000"});
  EXPECT_EQ(now_, HangState::Time(seconds(62)));
  EXPECT_EQ(lines(state_->cannot_read_stacks()), Lines{"tell"});
  EXPECT_EQ(told_[1].where, "rank 1: no answer; ");
  EXPECT_TRUE(told_[1].blame);
}

TEST_F(HangStateTest, AStoppedProcessNeedNotAnswer) {
  job(true, 1);
  view_.workers[0].state = 'T';
  EXPECT_EQ(timer(), Lines{"ask 0"});
  EXPECT_EQ(timer(), Lines{"stack of 100 in 10000"});
  EXPECT_EQ(now_, HangState::Time(seconds(60)));
}

TEST_F(HangStateTest, WhoeverMovesBeforeItIsJudgedEndsTheInquiry) {
  job(true, 2);
  timer();
  answers(0, 18, Stage::kBackward);
  now_ += seconds(1);
  progress(1, 18);
  answers(1, 18, Stage::kForward);
  EXPECT_EQ(timer(), Lines{});
  EXPECT_EQ(timer_, HangState::Time(seconds(121)));  // a limit learned after that step
}

TEST_F(HangStateTest, NothingIsAskedWhileItDoesNotMatterOrNobodyRuns) {
  job(true, 1);
  view_.matters = false;
  EXPECT_EQ(timer(), Lines{});
  view_.matters = true;
  view_.workers[0].pid = 0;
  EXPECT_EQ(timer(), Lines{});
  view_.workers[0].pid = 100;
  EXPECT_EQ(timer(), Lines{"ask 0"});
  EXPECT_EQ(now_, HangState::Time(seconds(180)));
}

TEST_F(HangStateTest, ATimerThatFiresLateExcusesTheWorkers) {
  job(true, 1);
  now_ = *timer_ + seconds(5);  // this agent itself was stopped
  EXPECT_EQ(lines(state_->timer_fired(view_, now_)), Lines{});
  EXPECT_EQ(timer_, now_ + seconds(60));
}

TEST_F(HangStateTest, WhereAllWaitTheOneToBlameMayBeElsewhereAndHasItsTime) {
  job(true, 1, true);
  timer();
  answers(0, 18, Stage::kBackward);
  EXPECT_EQ(timer(), Lines{});
  EXPECT_GE(*timer_, now_ + seconds(15));  // the other node's agent reads the stacks
  EXPECT_EQ(timer(), Lines{"ask 0"});
  answers(0, 18, Stage::kBackward);
  EXPECT_EQ(timer(), Lines{"stack of 100 in 10000"});
}

TEST_F(HangStateTest, OutputInFilesThatGrowsIsProgress) {
  job(false, 1);
  view_.files_count = true;
  view_.bytes_in_files = 10;
  EXPECT_EQ(timer(), Lines{});
  view_.bytes_in_files.reset();  // unknown: it may still grow
  EXPECT_EQ(timer(), Lines{});
  view_.bytes_in_files = 10;
  EXPECT_EQ(timer(), Lines{});  // no query is sent: it has reported no step
  EXPECT_EQ(timer(), Lines{"stack of 100 in 10000"});
}

TEST_F(HangStateTest, StacksHaveATimeInAllAndAreOfFourAtMost) {
  job(true, 6);
  timer();
  timer();  // no worker answers
  now_ += seconds(9);
  EXPECT_EQ(lines(state_->stack_read({}, now_)), Lines{"stack of 101 in 6000"});
  now_ += seconds(6);
  EXPECT_EQ(lines(state_->stack_read({}, now_)), Lines{"tell"});
  job(true, 6);
  timer();
  timer();
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(lines(state_->stack_read({}, now_)).size(), 1u);
  EXPECT_EQ(lines(state_->stack_read({}, now_)), Lines{"tell"});
}

TEST_F(HangStateTest, OnceItIsToldNothingFollowsInTheRound) {
  job(true, 1);
  timer();
  timer();
  lines(state_->cannot_read_stacks());
  EXPECT_EQ(lines(state_->timer_fired(view_, now_ + seconds(100))), Lines{});
  EXPECT_EQ(lines(state_->cannot_read_stacks()), Lines{});
  EXPECT_EQ(progress(0, 40), Lines{});
}

TEST_F(HangStateTest, TheEndOfTheRoundEndsAnInquiry) {
  job(true, 1);
  timer();
  lines(state_->end_round());
  EXPECT_FALSE(timer_.has_value());
  EXPECT_EQ(answers(0, 1, Stage::kLoading), Lines{});
  EXPECT_EQ(lines(state_->timer_fired(view_, now_)), Lines{});  // the handler was already in the loop's queue
}

}  // namespace
}  // namespace ddprun
