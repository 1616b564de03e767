// Tests after which exit codes a job is requeued, and the budgets that limit requeues.
#include "launcher/submit/slurm/requeue_decision.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ddprun {
namespace {

const std::string kJob = "slurm 17";
constexpr double kFarFromLimit = 10'000;
constexpr double kAtLimit = 100;

StartEnd end_with(int code, double seconds_left, std::int64_t published = 0) {
  return {.job = kJob, .code = code, .seconds_left = seconds_left, .signal_before_s = 120, .published = published};
}

RequeueDecision decision_after(const StartEnd& end, RequeueRecord before = {.job = kJob}) {
  return decide_requeue(before, end, {.failures = 3, .timeouts = 3});
}

TEST(Requeue, TheFirstDecisionFollowsTheExitCode) {
  struct Row {
    int code;
    bool requeue;
    int exit_code;  // exit code of the batch script if the job is not requeued
    const char* why;
  };
  const std::vector<Row> rows{
      {0, false, 0, "complete"},   {1, true, 0, "failure 1 of 3"}, {2, false, 2, "would not help"}, {79, true, 0, "failure"},
      {80, true, 0, "failure"},    {81, true, 0, "failure"},       {82, false, 82, "not help"},     {83, false, 83, "not help"},
      {84, false, 84, "not help"}, {85, true, 0, "preempted"},     {86, true, 0, "preempted"},      {87, false, 87, "not help"},
      {88, false, 88, "not help"}, {89, true, 0, "failure"},       {90, false, 90, "not help"},     {91, true, 0, "failure"},
      {127, true, 0, "failure"},   {129, true, 0, "preempted"},    {130, true, 0, "preempted"},     {137, true, 0, "failure"},
      {139, true, 0, "failure"},   {143, true, 0, "preempted"},    {255, true, 0, "failure 1 of 3"}};
  for (const Row& row : rows) {
    const RequeueDecision decision = decision_after(end_with(row.code, kFarFromLimit));
    EXPECT_EQ(decision.requeue, row.requeue) << row.code;
    EXPECT_EQ(decision.exit_code, row.exit_code) << row.code;
    EXPECT_NE(decision.why.find(row.why), std::string::npos) << row.code << ": " << decision.why;
    EXPECT_EQ(decision.record.requeues, row.requeue ? 1 : 0) << row.code;
  }
}

// Applies `ends` in order. Returns the number of requeues before the job ends.
int requeues_of(const std::vector<StartEnd>& ends, RequeueDecision& last) {
  RequeueRecord record{.job = kJob};
  int count = 0;
  for (const StartEnd& end : ends) {
    last = decision_after(end, record);
    record = last.record;
    if (!last.requeue) return count;
    ++count;
  }
  return count;
}

TEST(Requeue, PreemptionsHaveNoLimit) {
  RequeueDecision last;
  EXPECT_EQ(requeues_of(std::vector<StartEnd>(100, end_with(85, kFarFromLimit)), last), 100);
  EXPECT_EQ(last.record.timeouts, 0);
  EXPECT_EQ(last.record.failures, 0);
}

TEST(Requeue, TimeLimitsWithNewerCheckpointsHaveNoLimit) {
  std::vector<StartEnd> ends;
  for (int i = 1; i <= 100; ++i) ends.push_back(end_with(85, kAtLimit, i));
  RequeueDecision last;
  EXPECT_EQ(requeues_of(ends, last), 100);
  EXPECT_EQ(last.record.timeouts, 0);
}

TEST(Requeue, TimeLimitsWithoutNewerCheckpointsHaveALimit) {
  for (const int code : {85, 143}) {
    RequeueDecision last;
    EXPECT_EQ(requeues_of(std::vector<StartEnd>(100, end_with(code, kAtLimit)), last), 3);
    // With RequeueExit=85 in slurm.conf, Slurm would requeue the job because of the exit code 85.
    EXPECT_EQ(last.exit_code, code == 85 ? 82 : code);
    EXPECT_NE(last.why.find("longer --time"), std::string::npos);
  }
}

TEST(Requeue, ANewerCheckpointRestoresTheBudgetForTimeLimits) {
  RequeueDecision last;
  std::vector<StartEnd> ends(3, end_with(143, kAtLimit));
  ends.push_back(end_with(85, kAtLimit, 1));
  for (int i = 0; i < 4; ++i) ends.push_back(end_with(143, kAtLimit, 1));
  EXPECT_EQ(requeues_of(ends, last), 7);
}

TEST(Requeue, ACheckpointInTheRunDirectoryIsProgress) {
  StartEnd end = end_with(85, kAtLimit);
  end.newest_step = 40;
  const RequeueDecision first = decision_after(end, {.job = kJob, .newest_step = 39});
  EXPECT_EQ(first.record.timeouts, 0);
  EXPECT_EQ(decision_after(end, first.record).record.timeouts, 1);
}

// ddprun does not know in which files a script saves its state. But the job ends with exit code 85 only if all ranks have
// saved.
TEST(Requeue, AScriptThatHasSavedHasMadeProgress) {
  StartEnd end = end_with(85, kAtLimit);
  end.of_script = true;
  RequeueDecision last;
  EXPECT_EQ(requeues_of(std::vector<StartEnd>(100, end), last), 100);
  end.code = 143;
  EXPECT_EQ(requeues_of(std::vector<StartEnd>(100, end), last), 3);
}

TEST(Requeue, AnUnknownTimeCountsAsTheTimeLimit) {
  StartEnd end = end_with(143, 0);
  end.seconds_left = std::nullopt;
  EXPECT_EQ(decision_after(end).record.timeouts, 1);
}

TEST(Requeue, SlurmMaySendItsSignalAMinuteEarly) {
  EXPECT_EQ(decision_after(end_with(143, 120 + 60)).record.timeouts, 1);
  EXPECT_EQ(decision_after(end_with(143, 120 + 70)).record.timeouts, 0);
}

TEST(Requeue, FailuresHaveABudgetForTheWholeJob) {
  RequeueDecision last;
  // Preemptions and checkpoints between the failures do not refill the budget.
  const std::vector<StartEnd> ends{end_with(1, kFarFromLimit),   end_with(85, kFarFromLimit, 1), end_with(137, kAtLimit, 2),
                                   end_with(85, kAtLimit, 3),    end_with(80, kFarFromLimit, 4), end_with(7, kFarFromLimit, 5),
                                   end_with(1, kFarFromLimit, 6)};
  EXPECT_EQ(requeues_of(ends, last), 5);
  EXPECT_EQ(last.exit_code, 7);
  EXPECT_EQ(last.record.failures, 3);
}

TEST(Requeue, AScriptsOwnCodeIsAFailure) {
  StartEnd end = end_with(85, kFarFromLimit);
  end.is_workers_code = true;
  RequeueDecision last;
  EXPECT_EQ(requeues_of(std::vector<StartEnd>(100, end), last), 3);
  EXPECT_EQ(last.exit_code, 82);
}

TEST(Requeue, AnotherJobHasNewBudgetsButOldProgress) {
  const RequeueRecord before{.job = "slurm 3", .failures = 3, .timeouts = 3, .requeues = 9, .published = 5, .newest_step = 50};
  const RequeueDecision decision = decision_after(end_with(143, kAtLimit, 5), before);
  EXPECT_TRUE(decision.requeue);
  EXPECT_EQ(decision.record, (RequeueRecord{.job = kJob, .timeouts = 1, .requeues = 1, .published = 5, .newest_step = 50}));
}

TEST(Requeue, AStoppedJobIsNotRequeued) {
  for (const int code : {1, 85, 143}) {
    StartEnd end = end_with(code, kFarFromLimit, 1);
    end.requeue_allowed = false;
    const RequeueDecision decision = decision_after(end);
    EXPECT_FALSE(decision.requeue) << code;
    EXPECT_EQ(decision.exit_code, code == 85 ? 143 : code);
  }
}

TEST(Requeue, ABudgetOfZeroAllowsNoRequeue) {
  EXPECT_FALSE(decide_requeue({}, end_with(1, kFarFromLimit), {.failures = 0, .timeouts = 0}).requeue);
  EXPECT_FALSE(decide_requeue({}, end_with(143, kAtLimit), {.failures = 0, .timeouts = 0}).requeue);
}

}  // namespace
}  // namespace ddprun
