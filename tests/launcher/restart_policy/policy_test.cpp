// Tests the restart policy. There is one test for each rule about restarts, budgets and pauses. After them come the tests of
// the policy file.
#include "launcher/diagnosis/oom_verdict.hpp"
#include "launcher/plan/restart_policy_file.hpp"
#include "launcher/restart_policy/restart_policy.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using rendezvous::Verdict;

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

int code_of(const Verdict& verdict) {
  return verdict.restart ? -1 : verdict.exit_code;
}

// Returns the decision after the last round in `rounds`. The budget after each decision is passed to the next decision.
Verdict decide(const std::vector<FailedRound>& rounds, const RestartLimits& limits) {
  Verdict last;
  for (const FailedRound& round : rounds) last = decide_restart(round, last.after, limits);
  return last;
}

milliseconds delay_of(const Verdict& verdict) {
  EXPECT_TRUE(verdict.restart) << verdict.why;
  return verdict.delay;
}

TEST(RestartPolicy, WithoutABudgetTheWorkerExitCodeIsUsed) {
  const FailedRound round = crashed_round(7);
  EXPECT_EQ(code_of(decide({round}, {.max_restarts = 0})), 7);
}

TEST(RestartPolicy, ASignalIs128PlusItsNumber) {
  FailedRound round = crashed_round();
  round.cause = Cause::kSignal;
  round.status = {.code = 0, .signal = 9};
  EXPECT_EQ(code_of(decide({round}, {.max_restarts = 0})), 137);
}

TEST(RestartPolicy, ATotalBudgetIsNeverRefilled) {
  std::vector<FailedRound> history;
  for (int i = 0; i < 2; ++i) {
    history.push_back(crash_at(100 * (i + 1), 100 * i, 100 * (i + 1)));
    const auto decision = decide(history, {.max_restarts = 2});
    EXPECT_EQ(decision.why, "restart " + std::to_string(i + 1) + " of 2");
  }
  history.push_back(crash_at(300, 200, 300));
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 2})), 1);
}

TEST(RestartPolicy, ProgressRefillsTheDefaultBudget) {
  std::vector<FailedRound> history;
  for (int i = 0; i < 20; ++i) {
    history.push_back(crash_at(100 * (i + 1), 100 * i, 100 * (i + 1)));
    EXPECT_EQ(decide(history, {.max_restarts = 3, .refill_by_progress = true}).why, "restart 1 of 3");
  }
  for (int i = 0; i < 2; ++i) {  // these rounds publish no checkpoint, and fail at different steps
    history.push_back(crash_at(2001 + i, 2000, 2000));
    EXPECT_EQ(code_of(decide(history, {.max_restarts = 3, .refill_by_progress = true})), -1);
  }
  history.push_back(crash_at(2003, 2000, 2000));
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 3, .refill_by_progress = true})), 1);
}

TEST(RestartPolicy, UnrecoverableCausesAreNotRestarted) {
  for (const Cause cause :
       {Cause::kUsage, Cause::kSpawn, Cause::kDiverged, Cause::kCheckpoint, Cause::kDevice, Cause::kSuperseded}) {
    FailedRound round = crashed_round(2);
    round.cause = cause;
    EXPECT_EQ(code_of(decide({round}, {.max_restarts = 3})), 2) << name_of(cause);
  }
  for (const Cause cause :
       {Cause::kExitCode, Cause::kSignal, Cause::kException, Cause::kOutOfMemory, Cause::kLostPeer, Cause::kCorruptState}) {
    FailedRound round = crashed_round(2);
    round.cause = cause;
    EXPECT_EQ(code_of(decide({round}, {.max_restarts = 3})), -1) << name_of(cause);
  }
}

TEST(RestartPolicy, DecidingDoesNotChangeTheBudget) {
  const rendezvous::Budget none;
  const Verdict first = decide_restart(crashed_round(), none, {.max_restarts = 3});
  const Verdict again = decide_restart(crashed_round(), none, {.max_restarts = 3});
  EXPECT_EQ(again.after, first.after);
  EXPECT_EQ(first.after.restart_count, 1);
  EXPECT_EQ(decide_restart(crashed_round(), first.after, {.max_restarts = 1}).after.restart_count, 1) << "it was the last one";
}

TEST(RestartPolicy, PreemptionExitCodeCountsOnlyForTrainers) {
  const FailedRound saved = crashed_round(85);
  EXPECT_EQ(code_of(decide({saved}, {.max_restarts = 3, .preempted_has_saved = true})), 85);
  EXPECT_EQ(code_of(decide({saved}, {.max_restarts = 3})), -1);
}

TEST(RestartPolicy, AUsageErrorOfAReplacementKeepsSurvivorState) {
  FailedRound gone = crashed_round(2);
  gone.cause = Cause::kLateUsage;
  EXPECT_TRUE(decide({gone}, {.max_restarts = 0}).others_save);
  EXPECT_FALSE(decide({gone}, {.max_restarts = 1}).others_save);
  EXPECT_FALSE(decide({crashed_round(2)}, {.max_restarts = 0}).others_save);
}

// A round made progress if it published a checkpoint, or if the next round resumed from a newer step that surviving workers
// still had in memory.
TEST(RestartPolicy, SurvivorsHeldMoreIfTheRoundStartedFromANewerStep) {
  const FailedRound fresh = crash_at(10, 0, -1);
  EXPECT_TRUE(survivors_held_more(std::vector{fresh}, crash_at(20, 10, -1)));
  EXPECT_FALSE(survivors_held_more(std::vector{fresh}, crash_at(20, 0, -1)));  // no survivors: all workers were lost
  EXPECT_FALSE(survivors_held_more(std::vector{crash_at(15, 0, 10)}, crash_at(20, 10, 10))) << "a checkpoint, counted before";
  EXPECT_FALSE(survivors_held_more(std::vector<FailedRound>{}, crash_at(120, 100, -1))) << "an earlier start's work";
  EXPECT_FALSE(survivors_held_more(std::vector{crash_at(-1, -1, -1)}, crash_at(10, 0, -1))) << "no group had formed before";
  // Survivors had step 10 in memory. That state was lost, and the job reached step 10 a second time, which is not progress.
  EXPECT_FALSE(survivors_held_more(std::vector{fresh, crash_at(11, 10, -1), fresh}, crash_at(11, 10, -1)));
}

TEST(RestartPolicy, StepsThatWereOnlyReportedRefillNothing) {
  std::vector<FailedRound> history;
  for (const std::int64_t step : {10, 15, 10}) {
    history.push_back(crash_at(step, 0, -1));
    EXPECT_EQ(decide(history, {.max_restarts = 3, .refill_by_progress = true}).why,
              "restart " + std::to_string(history.size()) + " of 3");
  }
  history.push_back(crash_at(30, 0, -1));
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 3, .refill_by_progress = true})), 1);
}

TEST(RestartPolicy, SurvivorProgressRefillsTheBudgetAndEndsAFailureSeries) {
  std::vector<FailedRound> history{crash_at(10, 0, -1)};
  for (int i = 1; i < 10; ++i) {
    history.push_back(crash_at(10 * i + 10, 10 * i, -1));
    EXPECT_EQ(decide(history, {.max_restarts = 1, .refill_by_progress = true}).why, "restart 1 of 1");
  }
  RestartRules rules;
  rules.same_failure_rounds = 3;
  const std::vector<FailedRound> held_more{crash_at(41, 20, 20), crash_at(41, 30, 20), crash_at(41, 40, 20)};
  EXPECT_EQ(code_of(decide(held_more, {.max_restarts = 9, .rules = rules})), -1);
  const std::vector<FailedRound> same{crash_at(41, 40, 20), crash_at(41, 40, 20), crash_at(41, 40, 20)};
  EXPECT_EQ(code_of(decide(same, {.max_restarts = 9, .rules = rules})), 83);
}

TEST(RestartPolicy, BadDataAfterTrainingSavesTheOthersAndEndsTheJob) {
  FailedRound bad = crash_at(40, 20, 20);
  bad.cause = Cause::kUsage;
  bad.status.code = 2;
  const Verdict end = decide({bad}, {.max_restarts = 3});
  EXPECT_EQ(code_of(end), 2);
  EXPECT_TRUE(end.others_save);
  EXPECT_FALSE(end.preempted_once_saved);
  bad.step = 20;  // the round resumed from step 20, so this rank has finished no step in the round
  EXPECT_FALSE(decide({bad}, {.max_restarts = 3}).others_save);
}

TEST(RestartPolicy, TheSameFailureTwiceAtOneStepIsNoProgress) {
  const std::vector<FailedRound> stuck{crash_at(41, 0, 40), crash_at(41, 40, 40)};
  EXPECT_EQ(code_of(decide(stuck, {.max_restarts = 3})), 83);
  const std::vector<FailedRound> saved{crash_at(41, 0, 40), crash_at(41, 40, 41)};
  EXPECT_EQ(code_of(decide(saved, {.max_restarts = 3})), -1);
  const std::vector<FailedRound> further{crash_at(41, 0, 40), crash_at(42, 40, 40)};
  EXPECT_EQ(code_of(decide(further, {.max_restarts = 3})), -1);
  std::vector<FailedRound> other_cause = stuck;
  other_cause[1].status.code = 2;
  EXPECT_EQ(code_of(decide(other_cause, {.max_restarts = 3})), -1);
}

TEST(RestartPolicy, AProgramWithoutStepsGetsAllItsRestarts) {
  const std::vector<FailedRound> history{crashed_round(), crashed_round(), crashed_round()};
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 4})), -1);
}

TEST(RestartPolicy, MissingResourcesGetGrowingPauses) {
  FailedRound gone = crashed_round(2);
  gone.cause = Cause::kLateUsage;
  std::vector<FailedRound> history{crashed_round(), gone};
  EXPECT_EQ(delay_of(decide(history, {.max_restarts = 9})), milliseconds(2000));
  history.push_back(gone);
  EXPECT_EQ(delay_of(decide(history, {.max_restarts = 9})), milliseconds(4000));
  history.insert(history.end(), 3, gone);
  EXPECT_EQ(delay_of(decide(history, {.max_restarts = 9})), milliseconds(30000));
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 5})), 2);
  // Failures of kind kLateUsage at the same step do not count as one repeated failure.
  for (FailedRound& round : history) round.step = 40;
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 9})), -1);
}

TEST(RestartPolicy, OnlyRepeatedInstantCrashesPause) {
  std::vector<FailedRound> history;
  const std::vector<int> expected_ms{0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 30000, 30000, 30000};
  for (const int expected : expected_ms) {
    history.push_back(crashed_round());
    history.back().lasted = milliseconds(10);
    EXPECT_EQ(delay_of(decide(history, {.max_restarts = 100})).count(), expected);
  }
  history.push_back(crashed_round());  // this round ran for 60 s, so it was not an instant crash
  EXPECT_EQ(delay_of(decide(history, {.max_restarts = 100})).count(), 0);
  history.push_back(crashed_round());
  history.back().lasted = milliseconds(10);
  EXPECT_EQ(delay_of(decide(history, {.max_restarts = 100})).count(), 0);
}

TEST(RestartPolicy, ARoundWithProgressIsNotAnInstantCrash) {
  std::vector<FailedRound> history;
  for (int i = 0; i < 9; ++i) {
    history.push_back(crash_at(100 * (i + 1), 100 * i, 100 * (i + 1)));
    history.back().lasted = milliseconds(600);
    EXPECT_EQ(delay_of(decide(history, {.max_restarts = 100})).count(), 0);
  }
  for (const int expected : {0, 500}) {  // both rounds are instant crashes, so only the second round causes a pause
    history.push_back(crash_at(901 + expected, 900, 900));
    history.back().lasted = milliseconds(100);
    EXPECT_EQ(delay_of(decide(history, {.max_restarts = 100})).count(), expected);
  }
}

TEST(RestartPolicy, TheSameAllocationFailingTwiceEndsTheJob) {
  FailedRound failed = crashed_round();
  failed.cause = Cause::kOutOfMemory;
  failed.memory_requested =
      memory_requested_in("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 free");
  std::vector<FailedRound> history{failed};
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 1})), -1);
  history.push_back(failed);
  for (const int budget : {1, 9}) EXPECT_EQ(code_of(decide(history, {.max_restarts = budget})), 84);
  EXPECT_NE(decide(history, {.max_restarts = 9}).why.find("DDPRUN_OOM_COUNT"), std::string::npos);
  EXPECT_EQ(facts_of(decide(history, {.max_restarts = 9}).after.history), (RestartFacts{"out_of_memory", 2}));

  FailedRound less = failed;  // the script has read DDPRUN_OOM_COUNT and now requests less memory
  less.memory_requested =
      memory_requested_in("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has 1 free");
  EXPECT_EQ(code_of(decide({failed, less}, {.max_restarts = 9})), -1);
  EXPECT_EQ(code_of(decide({failed, crashed_round(), failed}, {.max_restarts = 9})), -1);
  RestartRules rules;
  rules.same_failure_rounds = 0;
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 9, .rules = rules})), -1);
  rules = {};
  rules.of_cause[static_cast<std::size_t>(Cause::kOutOfMemory)] = 5;
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 9, .rules = rules})), -1);
}

TEST(RestartPolicy, RepeatedOutOfMemoryExitsWith84) {
  FailedRound failed = crash_at(0, -1, -1);
  failed.cause = Cause::kOutOfMemory;  // the requested amount is unknown (0) in both rounds, so the failures count as the same
  EXPECT_EQ(code_of(decide({failed, failed}, {.max_restarts = 9})), 84);
  // the failed allocation requested 1 GiB, so the script has changed its memory use, and the failures differ
  FailedRound less = failed;
  less.memory_requested = memory_requested_in("CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has 1 free");
  EXPECT_EQ(code_of(decide({failed, less}, {.max_restarts = 9})), -1);
  failed.cause = Cause::kExitCode;
  EXPECT_EQ(code_of(decide({failed, failed}, {.max_restarts = 9})), 83);
}

TEST(OutOfMemoryText, RecognizesPythonAndLibraryMessages) {
  for (const char* line :
       {"MemoryError", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3.64 TiB for an array with shape (1,)",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)",
        "OSError: [Errno 12] Cannot allocate memory"}) {
    EXPECT_TRUE(reports_out_of_memory(line)) << line;
  }
  for (const char* line : {"ValueError: x", "KeyError: 'MemoryError'", "CUDA error: device-side assert triggered", ""}) {
    EXPECT_FALSE(reports_out_of_memory(line)) << line;
  }
  const auto gib = [](const char* amount) {
    return memory_requested_in("CUDA out of memory. Tried to allocate " + std::string(amount) + " GiB. GPU 0 has " + amount);
  };
  EXPECT_NE(gib("2.00"), gib("1.00"));
  EXPECT_NE(gib("2.00"), 0);
  EXPECT_EQ(memory_requested_in("CUDA out of memory. Tried to allocate 2.00 GiB. 5 MiB is free"),
            memory_requested_in("CUDA out of memory. Tried to allocate 2.00 GiB. 7 MiB is free"));
  EXPECT_EQ(memory_requested_in("MemoryError"), 0);
}

TEST(RestartPolicy, ShrinkingAfterOutOfMemoryUsesNoBudget) {
  FailedRound shrunk = crashed_round(84);
  shrunk.cause = Cause::kOutOfMemory;
  shrunk.shrink = channel::Shrink::kDone;
  std::vector<FailedRound> history{shrunk};
  EXPECT_EQ(code_of(decide(history, {.max_restarts = 0})), -1);
  history = {shrunk, shrunk, shrunk, crashed_round()};
  EXPECT_EQ(decide(history, {.max_restarts = 1}).why, "restart 1 of 1");
  FailedRound smallest = shrunk;
  smallest.shrink = channel::Shrink::kNothingLeft;
  const Verdict end = decide({smallest}, {.max_restarts = 3});
  EXPECT_EQ(code_of(end), 84);
  EXPECT_EQ(end.why, "out of memory, and the batch cannot be split into smaller pieces");
}

// ---- --restart-policy ----

RestartLimits policy_limits(const std::string& text) {
  const RestartPolicyFile file = parse_restart_policy(text, "policy.json");
  return {file.max_restarts.value_or(10), file.refill_by_progress.value_or(false), file.rules};
}

std::string policy_error(const std::string& text) {
  try {
    parse_restart_policy(text, "policy.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

FailedRound failed_of(Cause cause) {
  FailedRound round = crashed_round();
  round.cause = cause;
  return round;
}

TEST(RestartPolicyFile, ACauseHasItsOwnBudget) {
  const RestartLimits limits = policy_limits(R"({"causes": {"hang": 1, "exception": 0}})");
  std::vector<FailedRound> history{failed_of(Cause::kHang)};
  EXPECT_EQ(code_of(decide(history, limits)), -1);
  history.push_back(crashed_round());
  EXPECT_EQ(code_of(decide(history, limits)), -1);
  history.push_back(failed_of(Cause::kHang));
  const Verdict third = decide(history, limits);
  EXPECT_EQ(code_of(third), 82);
  EXPECT_EQ(third.why, "the 1 restart allowed for failures of cause hang is spent");
  history.push_back(failed_of(Cause::kException));
  EXPECT_EQ(decide(history, limits).why, "failures of cause exception are not restarted (--restart-policy)");
}

TEST(RestartPolicyFile, RefillingTheJobBudgetRefillsCauseBudgets) {
  const RestartLimits limits = policy_limits(R"({"max_restarts": 5, "refill_by_progress": true, "causes": {"exit_code": 1}})");
  std::vector<FailedRound> history{crash_at(41, 0, 40), crash_at(90, 40, 80)};
  EXPECT_EQ(code_of(decide(history, limits)), -1);
  history.push_back(crash_at(95, 80, 80));
  EXPECT_EQ(code_of(decide(history, limits)), 1);
}

TEST(RestartPolicyFile, RestartsAreConfigurableForDivergedRunsOnly) {
  const FailedRound diverged = failed_of(Cause::kDiverged);
  EXPECT_EQ(code_of(decide({diverged}, policy_limits(R"({"causes": {"diverged": 1}})"))), -1);
  EXPECT_EQ(policy_error(R"({"causes": {"usage": 1}})"),
            "policy.json:1:13: failures of cause 'usage' are never restarted (/causes/usage)");
}

TEST(RestartPolicyFile, SameFailureRoundsAndPausesAreConfigurable) {
  const std::vector<FailedRound> two{crash_at(41, 0, 40), crash_at(41, 40, 40)};
  EXPECT_EQ(code_of(decide(two, policy_limits(R"({"same_failure_rounds": 3})"))), -1);
  const std::vector<FailedRound> three{crash_at(41, 0, 40), crash_at(41, 40, 40), crash_at(41, 40, 40)};
  EXPECT_EQ(code_of(decide(three, policy_limits(R"({"same_failure_rounds": 3})"))), 83);
  EXPECT_EQ(code_of(decide(three, policy_limits(R"({"same_failure_rounds": 0})"))), -1);

  std::vector<FailedRound> crashes(2, crashed_round());
  for (FailedRound& round : crashes) round.lasted = seconds(3);
  EXPECT_EQ(delay_of(decide(crashes, policy_limits(R"({"pause": {"instant_s": 5, "first_s": 0.25}})"))).count(), 250);
}

TEST(RestartPolicyFile, AllErrorsAreReportedWithTheirPositions) {
  EXPECT_EQ(policy_error("{\n  // ours\n  \"max_restart\": 3,\n  \"same_failure_rounds\": 1\n}"),
            "2 errors in the restart policy:\n"
            "  policy.json:3:3: unknown key 'max_restart' (/max_restart). Did you mean 'max_restarts'?\n"
            "  policy.json:4:26: expected a whole number, 0 (no limit) or 2 to 9, found 1 (/same_failure_rounds)");
  EXPECT_EQ(policy_error(R"({"causes": {"hangs": 1}})"),
            "policy.json:1:13: unknown key 'hangs' (/causes/hangs). Did you mean 'hang'?");
  EXPECT_EQ(policy_error(R"({"pause": {"first_s": "1"}})"),
            "policy.json:1:23: expected seconds from 0, found \"1\" (/pause/first_s)");
  EXPECT_EQ(policy_error(R"({"max_restarts": -1})"),
            "policy.json:1:18: expected a whole number from 0, found -1 (/max_restarts)");
  EXPECT_EQ(policy_error("[]"), "policy.json:1:1: expected an object in braces, found []");
  EXPECT_NE(policy_error("{"), "no error");
  EXPECT_NE(policy_error(R"({"same_failure_rounds": 10})"), "no error");
  EXPECT_NE(policy_error(R"({"max_restarts": 1, "max_restarts": 2})"), "no error");
}

TEST(RestartPolicyFile, DefaultRulesAreNotDescribed) {
  EXPECT_EQ(describe(policy_limits("{}").rules), "");
  EXPECT_EQ(describe(policy_limits(R"({"causes": {"hang": 2}, "same_failure_rounds": 0, "pause": {"longest_s": 5}})").rules),
            "hang: 2 restarts, same failure: any number of rounds, pause 0.5 s to 5 s");
}

}  // namespace
}  // namespace ddprun
