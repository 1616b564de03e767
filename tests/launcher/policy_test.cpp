// The restart policy, case by case.
#include "launcher/restart_policy.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

FailedRound crashed_round(int code = 1) {
  FailedRound round;
  round.rank = 0;
  round.status.code = code;
  round.lasted = seconds(60);
  return round;
}

FailedRound crash_at(std::int64_t step, std::int64_t resumed_from, std::int64_t newest) {
  FailedRound round = crashed_round();
  round.step = step;
  round.resumed_from = resumed_from;
  round.newest_checkpoint = newest;
  return round;
}

int code_of(const RestartDecision& decision) {
  const auto* give_up = std::get_if<GiveUp>(&decision);
  return give_up == nullptr ? -1 : give_up->exit_code;
}

milliseconds delay_of(const RestartDecision& decision) {
  return std::get<Restart>(decision).delay;
}

TEST(RestartPolicy, WithoutABudgetTheWorkersCodeIsPassedOn) {
  const FailedRound round = crashed_round(7);
  EXPECT_EQ(code_of(decide_restart(std::span(&round, 1), {.max_restarts = 0})), 7);
}

TEST(RestartPolicy, ASignalIs128PlusItsNumber) {
  FailedRound round = crashed_round();
  round.cause = Cause::kSignal;
  round.status = {.code = 0, .signal = 9};
  EXPECT_EQ(code_of(decide_restart(std::span(&round, 1), {.max_restarts = 0})), 137);
}

TEST(RestartPolicy, ATotalBudgetIsNeverRefilled) {
  std::vector<FailedRound> history;
  for (int i = 0; i < 2; ++i) {
    history.push_back(crash_at(100 * (i + 1), 100 * i, 100 * (i + 1)));
    const auto decision = decide_restart(history, {.max_restarts = 2});
    EXPECT_EQ(std::get<Restart>(decision).why, "restart " + std::to_string(i + 1) + " of 2");
  }
  history.push_back(crash_at(300, 200, 300));
  EXPECT_EQ(code_of(decide_restart(history, {.max_restarts = 2})), 1);
}

TEST(RestartPolicy, ProgressRefillsTheDefaultBudget) {
  std::vector<FailedRound> history;
  for (int i = 0; i < 20; ++i) {
    history.push_back(crash_at(100 * (i + 1), 100 * i, 100 * (i + 1)));
    EXPECT_EQ(std::get<Restart>(decide_restart(history, {.max_restarts = 3, .refill_by_progress = true})).why,
              "restart 1 of 3");
  }
  for (int i = 0; i < 2; ++i) {  // no checkpoint any more, each at another step
    history.push_back(crash_at(2001 + i, 2000, 2000));
    EXPECT_EQ(code_of(decide_restart(history, {.max_restarts = 3, .refill_by_progress = true})), -1);
  }
  history.push_back(crash_at(2003, 2000, 2000));
  EXPECT_EQ(code_of(decide_restart(history, {.max_restarts = 3, .refill_by_progress = true})), 1);
}

TEST(RestartPolicy, CausesThatNoRestartMends) {
  for (const Cause cause : {Cause::kUsage, Cause::kSpawn, Cause::kDiverged, Cause::kCheckpoint}) {
    FailedRound round = crashed_round(2);
    round.cause = cause;
    EXPECT_EQ(code_of(decide_restart(std::span(&round, 1), {.max_restarts = 3})), 2) << name_of(cause);
  }
  for (const Cause cause : {Cause::kExitCode, Cause::kSignal, Cause::kException, Cause::kOutOfMemory, Cause::kLostPeer}) {
    FailedRound round = crashed_round(2);
    round.cause = cause;
    EXPECT_EQ(code_of(decide_restart(std::span(&round, 1), {.max_restarts = 3})), -1) << name_of(cause);
  }
}

TEST(RestartPolicy, TheSameFailureTwiceAtOneStepIsNoProgress) {
  const std::vector<FailedRound> stuck{crash_at(41, 0, 40), crash_at(41, 40, 40)};
  EXPECT_EQ(code_of(decide_restart(stuck, {.max_restarts = 3})), 83);
  const std::vector<FailedRound> saved{crash_at(41, 0, 40), crash_at(41, 40, 41)};
  EXPECT_EQ(code_of(decide_restart(saved, {.max_restarts = 3})), -1);
  const std::vector<FailedRound> further{crash_at(41, 0, 40), crash_at(42, 40, 40)};
  EXPECT_EQ(code_of(decide_restart(further, {.max_restarts = 3})), -1);
  std::vector<FailedRound> other_cause = stuck;
  other_cause[1].status.code = 2;
  EXPECT_EQ(code_of(decide_restart(other_cause, {.max_restarts = 3})), -1);
}

TEST(RestartPolicy, AProgramWithoutStepsGetsAllItsRestarts) {
  const std::vector<FailedRound> history{crashed_round(), crashed_round(), crashed_round()};
  EXPECT_EQ(code_of(decide_restart(history, {.max_restarts = 4})), -1);
}

TEST(RestartPolicy, OnlyRepeatedInstantCrashesPause) {
  std::vector<FailedRound> history;
  const std::vector<int> expected_ms{0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 30000, 30000, 30000};
  for (const int expected : expected_ms) {
    history.push_back(crashed_round());
    history.back().lasted = milliseconds(10);
    EXPECT_EQ(delay_of(decide_restart(history, {.max_restarts = 100})).count(), expected);
  }
  history.push_back(crashed_round());  // one that lasted
  EXPECT_EQ(delay_of(decide_restart(history, {.max_restarts = 100})).count(), 0);
  history.push_back(crashed_round());
  history.back().lasted = milliseconds(10);
  EXPECT_EQ(delay_of(decide_restart(history, {.max_restarts = 100})).count(), 0);
}

TEST(RestartPolicy, ARoundThatGotOnIsNoInstantCrash) {
  std::vector<FailedRound> history;
  for (int i = 0; i < 9; ++i) {
    history.push_back(crash_at(100 * (i + 1), 100 * i, 100 * (i + 1)));
    history.back().lasted = milliseconds(600);
    EXPECT_EQ(delay_of(decide_restart(history, {.max_restarts = 100})).count(), 0);
  }
  for (const int expected : {0, 500}) {  // these two did not
    history.push_back(crash_at(901 + expected, 900, 900));
    history.back().lasted = milliseconds(100);
    EXPECT_EQ(delay_of(decide_restart(history, {.max_restarts = 100})).count(), expected);
  }
}

}  // namespace
}  // namespace ddprun
