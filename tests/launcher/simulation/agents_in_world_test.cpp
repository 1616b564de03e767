// Tests the production agents under all faults of the simulator. The invariants must hold for every seed.
//
// A second test turns off one rule of AgentState at a time (Flaw in agent_in_world.hpp). At least one seed must then violate an
// invariant, which shows that the rule is needed. ./dev test --long runs 100,000 seeds. DDPRUN_AGENTS_SEED=N prints the events
// of seed N.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launcher/restart_policy/job_judge.hpp"
#include "tests/launcher/simulation/agent_in_world.hpp"
#include "tests/rendezvous/simulation/simulator.hpp"

namespace ddprun::test {
namespace {

using rendezvous::simulation::Result;
using rendezvous::simulation::Scenario;
using rendezvous::simulation::simulate;

constexpr int kExitOfABrokenDevice = 9;

Scenario with_agents(std::uint64_t seed, Flaw flaw = Flaw::kNone) {
  Scenario scenario{.seed = seed};
  scenario.launcher = production_agents(flaw);
  scenario.judge = [](const rendezvous::FailureReport& report, const rendezvous::Budget& before, int most) {
    RestartLimits limits{.max_restarts = most};
    limits.rules.longest_pause = std::chrono::seconds(2);
    rendezvous::Verdict verdict = judge(report, before, limits);
    // The simulator interprets kExitOfABrokenDevice as "one node leaves and the job continues". `verdict` ends the whole job,
    // so it must have a different exit code.
    if (verdict.exit_code == kExitOfABrokenDevice) verdict.exit_code = 7;
    return verdict;
  };
  return scenario;
}

std::string violation_of(const Result& result) {
  return result.violation.empty() ? result.stuck : result.violation;
}

std::string story_of(std::uint64_t seed, Flaw flaw = Flaw::kNone) {
  Scenario scenario = with_agents(seed, flaw);
  scenario.trace = true;
  std::string text = "seed " + std::to_string(seed) + ":\n";
  for (const std::string& line : simulate(scenario).trace_lines) text += line + "\n";
  return text;
}

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(AgentsInWorld, EverySeedKeepsTheInvariants) {
  if (std::getenv("DDPRUN_AGENTS_SEED") != nullptr) {
    std::cout << story_of(number_from("DDPRUN_AGENTS_SEED", 0));
    return;
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t kOrdinary = 40;
#else
  constexpr std::uint64_t kOrdinary = 1500;
#endif
  const bool is_long = std::getenv("DDPRUN_LONG_TESTS") != nullptr;
  const std::uint64_t from = number_from("DDPRUN_AGENTS_FROM", 0);
  const std::uint64_t seeds = number_from("DDPRUN_AGENTS_SEEDS", is_long ? 100000 : kOrdinary);
  const bool all_cores = is_long || std::getenv("DDPRUN_AGENTS_SEEDS") != nullptr;
  std::atomic<std::uint64_t> next{from};
  std::atomic<std::uint64_t> excused{0};
  std::mutex guard;
  std::map<std::uint64_t, std::string> failed;
  const auto work = [&] {
    for (std::uint64_t seed = next++; seed < from + seeds; seed = next++) {
      const Result result = simulate(with_agents(seed));
      excused += result.excused ? 1 : 0;
      const std::string wrong = violation_of(result);
      if (wrong.empty()) continue;
      const std::scoped_lock locked(guard);
      failed.emplace(seed, wrong);
    }
  };
  {
    std::vector<std::jthread> others;
    for (unsigned i = 1; all_cores && i < std::thread::hardware_concurrency(); ++i) others.emplace_back(work);
    work();
  }
  std::string list;
  for (const auto& [seed, wrong] : failed) list += std::to_string(seed) + ": " + wrong + "\n";
  EXPECT_TRUE(failed.empty()) << (failed.empty() ? "" : story_of(failed.begin()->first)) << list;
  std::printf("%llu of %llu seeds ended early in a state without guarantees\n", static_cast<unsigned long long>(excused),
              static_cast<unsigned long long>(seeds));
}

// Regression test. A coordinator counted a failure and started the next round, but was lost before enough nodes had received
// the round. The next coordinator inherited the counted failure. When a node reported the failure again, the coordinator
// counted it a second time.
TEST(AgentsInWorld, AFailureUsesOneRestart) {
  for (const std::uint64_t seed : {6947u, 7378u, 11561u}) {
    EXPECT_EQ(violation_of(simulate(with_agents(seed))), "") << "seed " << seed;
  }
}

// Regression test. A node had received the job's exit code, but the kernel could not end one of its workers. The node then
// exited with 89 instead of the job's exit code.
TEST(AgentsInWorld, ANodeWithAStuckWorkerEndsWithTheJob) {
  for (const std::uint64_t seed : {1396u, 2372u, 2516u}) {
    EXPECT_EQ(violation_of(simulate(with_agents(seed))), "") << "seed " << seed;
  }
}

struct FlawCase {
  const char* name;
  Flaw flaw;
  std::uint64_t from = 0;  // first seed of the search, for flaws that few seeds detect
};

class AgentRules : public testing::TestWithParam<FlawCase> {};

TEST_P(AgentRules, IsNeeded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the release build shows it";
#endif
  const char* const elsewhere = std::getenv("DDPRUN_MUTATION_FROM");  // starts the search at another seed
  const std::uint64_t from = elsewhere == nullptr ? GetParam().from : std::strtoull(elsewhere, nullptr, 10);
  for (std::uint64_t seed = from; seed < from + 6000; ++seed) {
    const std::string wrong = violation_of(simulate(with_agents(seed, GetParam().flaw)));
    if (wrong.empty()) continue;
    ASSERT_EQ(violation_of(simulate(with_agents(seed))), "") << "it notices something else, at seed " << seed;
    std::cout << "seed " << seed << ": " << wrong << "\n";
    return;
  }
  FAIL() << "the simulator does not notice";
}

INSTANTIATE_TEST_SUITE_P(
    Mutations, AgentRules,
    testing::Values(
        FlawCase{"FailuresAreReported", Flaw::kHidesFailures}, FlawCase{"WhatWasCutOffHasNotFailed", Flaw::kFailsAfterCutOff},
        FlawCase{"ARoundIsOverWhenItsWorkersAre", Flaw::kIsOverEarly},
        FlawCase{"WhatWasStoppedIsNotDone", Flaw::kCallsStoppedDone},
        FlawCase{"WhatHasEndedIsNotSaved", Flaw::kCallsEndedSaved}, FlawCase{"AllSaveAtOneStep", Flaw::kSavesAtOwnStep},
        FlawCase{"StepsAreSaid", Flaw::kHidesSteps}, FlawCase{"SignalsAreReported", Flaw::kHidesSignals},
        FlawCase{"SaveOrdersAreObeyed", Flaw::kIgnoresSaveOrders}, FlawCase{"WhoWaitsIsOutOfTheRound", Flaw::kHidesHeld},
        FlawCase{"DismissedWorkersEnd", Flaw::kKeepsDismissed}, FlawCase{"TheJobEndsAfterItsWorkers", Flaw::kEndsBeforeHeld},
        FlawCase{"WhoDoesNotStopIsKilled", Flaw::kNeverKills}, FlawCase{"RegroupsEnd", Flaw::kNeverEndsRegroup, 50000},
        FlawCase{"LostWorkersAreReplaced", Flaw::kReplacesNone}),
    [](const auto& mutation) { return std::string(mutation.param.name); });

}  // namespace
}  // namespace ddprun::test
