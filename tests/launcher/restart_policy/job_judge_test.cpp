// Tests JobJudge, which decides after the failure of a worker whether the job restarts, and which tracks the restart budget.
#include "launcher/restart_policy/job_judge.hpp"

#include <gtest/gtest.h>

#include "rendezvous/wire/codec.hpp"

namespace ddprun {
namespace {

using rendezvous::Budget;
using rendezvous::FailureReport;
using rendezvous::Verdict;

FailureReport crash(int code, std::int64_t step = -1) {
  FailureReport report;
  report.failed.rank = 3;
  report.hostname = "b";
  report.failed.status.code = code;
  report.failed.step = step;
  report.failed.lasted = std::chrono::seconds(5);
  return report;
}

TEST(JobJudge, CountsRestartsOfTheWholeJob) {
  const RestartLimits limits{.max_restarts = 2};
  const Verdict first = judge(crash(1), {}, limits);
  ASSERT_TRUE(first.restart);
  EXPECT_EQ(first.why, "restart 1 of 2");
  const Verdict second = judge(crash(1), first.after, limits);
  ASSERT_TRUE(second.restart);
  const Verdict third = judge(crash(7), second.after, limits);
  EXPECT_FALSE(third.restart);
  EXPECT_EQ(third.exit_code, 7);
  EXPECT_EQ(third.end(), "worker 3 on b: exit code 7; budget of 2 restarts spent");
}

TEST(JobJudge, ProgressRefillsTheBudget) {
  const RestartLimits limits{.max_restarts = 1, .refill_by_progress = true};
  const Budget after = judge(crash(1), {}, limits).after;
  EXPECT_FALSE(judge(crash(1), after, limits).restart);
  FailureReport later = crash(1);
  later.failed.resumed_from = 10;
  later.failed.newest_checkpoint = 20;
  EXPECT_TRUE(judge(later, after, limits).restart);
}

TEST(JobJudge, RemembersThatTheSameStepFailedBefore) {
  const RestartLimits limits{.max_restarts = 5};
  const Budget after = judge(crash(1, 40), {}, limits).after;
  EXPECT_EQ(judge(crash(1, 40), after, limits).exit_code, 83);
  EXPECT_TRUE(judge(crash(1, 41), after, limits).restart);
}

TEST(JobJudge, RemembersCausesAndWhetherRoundsMadeProgress) {
  RestartLimits limits{.max_restarts = 50};
  limits.rules.same_failure_rounds = 3;
  FailureReport report = crash(1, 40);
  report.failed.resumed_from = report.failed.newest_checkpoint = 30;
  const Budget twice = judge(report, judge(report, {}, limits).after, limits).after;
  EXPECT_EQ(judge(report, twice, limits).exit_code, 83);
  limits.rules.same_failure_rounds = 0;
  limits.rules.of_cause[static_cast<std::size_t>(Cause::kExitCode)] = 2;
  EXPECT_FALSE(judge(report, twice, limits).restart);
  limits.rules.of_cause[static_cast<std::size_t>(Cause::kExitCode)] = 3;
  EXPECT_TRUE(judge(report, twice, limits).restart);
}

TEST(JobJudge, CauseBudgetsOutliveTheRoundHistory) {
  RestartLimits limits{.max_restarts = 1000};
  limits.rules.same_failure_rounds = 0;
  limits.rules.of_cause[static_cast<std::size_t>(Cause::kExitCode)] = 40;
  Budget budget;
  for (int round = 0; round < 40; ++round) {
    const auto verdict = judge(crash(1, round), budget, limits);
    ASSERT_TRUE(verdict.restart) << round << ": " << verdict.why;
    budget = verdict.after;
  }
  EXPECT_FALSE(judge(crash(1, 40), budget, limits).restart);
}

TEST(JobJudge, ARestartThatNeedsLessMemoryUsesNoBudget) {
  const RestartLimits limits{.max_restarts = 1};
  FailureReport report = crash(84, 40);
  report.failed.cause = Cause::kOutOfMemory;
  report.failed.shrink = channel::Shrink::kDone;
  Budget budget;
  // All rounds fail at the same step. This happens when a worker halves its batch until the batch fits into memory.
  for (int round = 0; round < 4; ++round) {
    const Verdict verdict = judge(report, budget, limits);
    ASSERT_TRUE(verdict.restart) << verdict.why;
    budget = verdict.after;
  }
  EXPECT_EQ(budget.history.used, 0);
  EXPECT_TRUE(judge(crash(1), budget, limits).restart);
  report.failed.shrink = channel::Shrink::kNothingLeft;
  EXPECT_EQ(judge(report, budget, limits).end(),
            "worker 3 on b: exit code 84; out of memory, and the batch cannot be split into smaller pieces");
}

TEST(JobJudge, HistoryIsBounded) {
  const RestartLimits limits{.max_restarts = 1000};
  Budget budget;
  for (int i = 0; i < 100; ++i) {
    FailureReport report = crash(-2'000'000'000, 1'000'000'000'000LL + i);
    report.failed.rank = 100'000;
    report.failed.newest_checkpoint = 1'000'000'000'000;
    const Verdict verdict = judge(report, budget, limits);
    ASSERT_TRUE(verdict.restart);
    budget = verdict.after;
  }
  EXPECT_EQ(budget.history.rounds.size(), kRoundsRemembered);
  EXPECT_EQ(budget.history.used, 100);
}

TEST(JobJudge, FailureReportsRoundTrip) {
  Failure failure;
  failure.rank = 5;
  failure.cause = Cause::kLostPeer;
  failure.status = ExitStatus{.code = 0, .signal = 11};
  failure.message = "gone";
  FailedRound record;
  record.rank = failure.rank;
  record.cause = failure.cause;
  record.status = *failure.status;
  record.step = 12;
  failure.step = 12;
  const Failure back = failure_of(report_of(failure, record));
  EXPECT_EQ(back.rank, 5);
  EXPECT_EQ(back.cause, Cause::kLostPeer);
  EXPECT_EQ(back.status->signal, 11);
  EXPECT_EQ(back.message, "gone");
  EXPECT_EQ(back.step, 12);
  EXPECT_EQ(back.local_rank, -1);  // a local rank is only valid on the node that reported the failure
}

TEST(JobJudge, FailedAllocationsArePassedToTheNextRound) {
  rendezvous::FailureReport report = crash(3);
  report.failed.cause = Cause::kOutOfMemory;
  report.failed.step = report.failed.resumed_from = report.failed.newest_checkpoint = -1;
  report.failed.memory_requested = 2;
  const RestartLimits limits{.max_restarts = 9};
  const Verdict first = judge(report, {}, limits);
  ASSERT_TRUE(first.restart);
  EXPECT_EQ(facts_of(first.after.history), (RestartFacts{"out_of_memory", 1}));
  rendezvous::FailureReport less = report;
  less.failed.memory_requested = 1;
  EXPECT_TRUE(judge(less, first.after, limits).restart);
  EXPECT_EQ(judge(report, first.after, limits).exit_code, 84);
}

}  // namespace
}  // namespace ddprun
