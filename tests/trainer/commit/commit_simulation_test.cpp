// Tests the commit rule with ranks that are lost at random points. The oracle must find no violation with any seed. If a
// Mistake is planted, the oracle must find a violation with at least one seed.
//
// Set DDPRUN_COMMIT_SEEDS=100000 to run more seeds, and DDPRUN_COMMIT_SEED=N to print all actions of one seed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/trainer/commit/simulated_job.hpp"

namespace ddprun::trainer::simulation {
namespace {

constexpr std::uint64_t kOrdinaryCommitSeeds = 2000;
constexpr std::uint64_t kSeedsForMistakes = 20000;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Returns the mistake number N that DDPRUN_COMMIT_MISTAKE=N plants in the printed simulation.
Mistake mistake_from_environment() {
  return static_cast<Mistake>(number_from("DDPRUN_COMMIT_MISTAKE", 0));
}

std::string story_of(CommitScenario scenario) {
  scenario.trace = true;
  std::string text;
  for (const std::string& line : simulate_job(scenario).story) text += line + "\n";
  return text;
}

TEST(CommitSimulation, EverySeedKeepsTheRules) {
  if (const char* one = std::getenv("DDPRUN_COMMIT_SEED")) {
    std::cout << story_of({.seed = std::strtoull(one, nullptr, 10), .mistake = mistake_from_environment()});
    return;
  }
  const std::uint64_t seeds = number_from("DDPRUN_COMMIT_SEEDS", kOrdinaryCommitSeeds);
  CommitResult sum;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const CommitResult result = simulate_job({.seed = seed});
    ASSERT_EQ(result.violation, "") << "seed " << seed << "\n" << story_of({.seed = seed});
    sum.actions += result.actions;
    sum.regroups += result.regroups;
    sum.returns += result.returns;
    sum.completions += result.completions;
    sum.checkpoints += result.checkpoints;
    sum.interrupted += result.interrupted;
    sum.double_losses += result.double_losses;
    sum.failed_updates += result.failed_updates;
    sum.broken_gathers += result.broken_gathers;
    sum.new_layouts += result.new_layouts;
  }
  std::printf(
      "%llu seeds, %lld actions, %d regroups: %d to the last step, %d completed a step, %d to the checkpoint; %d during a "
      "regroup, %d lost several ranks, %d failed updates, %d interrupted gathers, %d new layouts\n",
      static_cast<unsigned long long>(seeds), static_cast<long long>(sum.actions), sum.regroups, sum.returns, sum.completions,
      sum.checkpoints, sum.interrupted, sum.double_losses, sum.failed_updates, sum.broken_gathers, sum.new_layouts);
  const int least = static_cast<int>(seeds / 100);  // each kind of regroup must occur at least this often
  for (const int count : {sum.returns, sum.completions, sum.checkpoints, sum.interrupted, sum.double_losses, sum.failed_updates,
                          sum.broken_gathers, sum.new_layouts}) {
    EXPECT_GE(count, least);
  }
}

TEST(CommitSimulation, SameSeedGivesTheSameStory) {
  for (const std::uint64_t seed : {3u, 8u, 11u}) EXPECT_EQ(story_of({.seed = seed}), story_of({.seed = seed}));
}

struct PlantedMistake {
  const char* name;
  Mistake mistake;
};

class EveryMistake : public testing::TestWithParam<PlantedMistake> {};

TEST_P(EveryMistake, IsFound) {
  for (std::uint64_t seed = 0; seed < kSeedsForMistakes; ++seed) {
    const CommitResult result = simulate_job({.seed = seed, .mistake = GetParam().mistake});
    if (result.violation.empty()) continue;
    ASSERT_EQ(simulate_job({.seed = seed}).violation, "") << "seed " << seed << " shows something else";
    std::cout << "seed " << seed << ": " << result.violation << "\n";
    return;
  }
  FAIL() << "no seed shows it";
}

INSTANTIATE_TEST_SUITE_P(Mistakes, EveryMistake,
                         testing::Values(PlantedMistake{"UndoesBeforeTheDecision", Mistake::kUndoesBeforeTheDecision},
                                         PlantedMistake{"TakesValuesTooEarly", Mistake::kTakesValuesTooEarly},
                                         PlantedMistake{"SwitchesBeforeTheBarrier", Mistake::kSwitchesBeforeTheBarrier},
                                         PlantedMistake{"MirrorsAreNotCompleted", Mistake::kMirrorsAreNotCompleted},
                                         PlantedMistake{"CompletesTwice", Mistake::kCompletesTwice},
                                         PlantedMistake{"TrustsAnInterruptedGather", Mistake::kTrustsAnInterruptedGather},
                                         PlantedMistake{"ForgetsAgreedValues", Mistake::kForgetsAgreedValues},
                                         PlantedMistake{"ReceivesInPlace", Mistake::kReceivesInPlace},
                                         PlantedMistake{"BuffersAreNotRestored", Mistake::kBuffersAreNotRestored},
                                         PlantedMistake{"TrustsAFailedUpdate", Mistake::kTrustsAFailedUpdate},
                                         PlantedMistake{"SendsBeforeCompleting", Mistake::kSendsBeforeCompleting},
                                         PlantedMistake{"ReportsReceivedTooEarly", Mistake::kReportsReceivedTooEarly},
                                         PlantedMistake{"NoRankCompletes", Mistake::kNoRankCompletes},
                                         PlantedMistake{"OneTransferIsSkipped", Mistake::kOneTransferIsSkipped},
                                         PlantedMistake{"TwoLossesAreTooMany", Mistake::kTwoLossesAreTooMany},
                                         PlantedMistake{"UpdatesWithOwnValues", Mistake::kUpdatesWithOwnValues},
                                         PlantedMistake{"LosesTheEvaluation", Mistake::kLosesTheEvaluation}),
                         [](const auto& mistake) { return std::string(mistake.param.name); });

}  // namespace
}  // namespace ddprun::trainer::simulation
