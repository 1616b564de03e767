// The simulator's runs: whatever the seed chooses, what must hold holds; and for each rule of rules.hpp, without it some seed
// fails.
// ./dev test --long runs fifty times as many seeds. A failing seed prints its story.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <thread>

#include "tests/rendezvous/simulator.hpp"

namespace ddprun::rendezvous::simulation {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kOrdinarySeeds = 60;
#else
constexpr std::uint64_t kOrdinarySeeds = 2000;
#endif
constexpr std::uint64_t kLongSeeds = 100000;
constexpr std::uint64_t kSeedsForMutations = 6000;

bool is_long() {
  return std::getenv("DDPRUN_LONG_SIMULATION") != nullptr || std::getenv("DDPRUN_LONG_TESTS") != nullptr;
}

std::string story_of(Scenario scenario) {
  scenario.tell = true;
  std::string text = "seed " + std::to_string(scenario.seed) + ":\n";
  for (const std::string& line : simulate(scenario).story) text += line + "\n";
  return text;
}

// The first seed below `seeds` that breaks something.
std::optional<std::uint64_t> first_failing_seed(std::uint64_t seeds, const Rules& rules, unsigned threads) {
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> failing{seeds};
  const auto work = [&] {
    for (std::uint64_t seed = next++; seed < failing.load(); seed = next++) {
      if (simulate({.seed = seed, .rules = rules}).violation.empty()) continue;
      std::uint64_t before = failing.load();
      while (seed < before && !failing.compare_exchange_weak(before, seed)) {
      }
    }
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  others.clear();
  return failing < seeds ? std::optional(failing.load()) : std::nullopt;
}

int stuck_seeds(std::uint64_t seeds, const Rules& rules, std::string& names) {
  int stuck = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    if (simulate({.seed = seed, .rules = rules}).stuck.empty()) continue;
    ++stuck;
    names += " " + std::to_string(seed);
  }
  return stuck;
}

TEST(Simulation, WhateverTheSeedChoosesWhatMustNeverBeIsNot) {
  if (const char* one = std::getenv("DDPRUN_SIMULATION_SEED")) {
    std::cout << story_of({.seed = std::strtoull(one, nullptr, 10)});
    return;
  }
  const std::uint64_t seeds = is_long() ? kLongSeeds : kOrdinarySeeds;
  const unsigned threads = is_long() ? std::max(1u, std::thread::hardware_concurrency()) : 1;
  const auto failing = first_failing_seed(seeds, Rules{}, threads);
  ASSERT_FALSE(failing.has_value()) << story_of({.seed = *failing});
}

// Known and open: in a few seeds of a thousand the nodes do not find each other again, for example when the coordinator was
// elected by nodes whose addresses the others never learned, and does not call at the job's first address. The bound keeps it
// from growing; the aim is none. docs/rendezvous.md says the same.
TEST(Simulation, NearlyAllJobsEndInTimeAfterTheLastFault) {
  const std::uint64_t seeds = std::min<std::uint64_t>(kOrdinarySeeds, 1000);
  std::string names;
  const int stuck = stuck_seeds(seeds, Rules{}, names);
  std::cout << stuck << " of " << seeds << " seeds are stuck:" << names << "\n";
  EXPECT_LE(stuck, 10);
}

TEST(Simulation, ASeedIsAlwaysTheSameStory) {
  for (const std::uint64_t seed : {3u, 8u, 11u}) EXPECT_EQ(story_of({.seed = seed}), story_of({.seed = seed}));
}

TEST(Simulation, TheFaultsReachWhatTheyShould) {
  std::int64_t successions = 0;
  std::int64_t rounds = 0;
  std::set<int> ends;
  int stuck = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Result result = simulate({.seed = seed});
    stuck += result.nobody_may_lead ? 1 : 0;
    successions += result.successions;
    rounds += result.rounds;
    ends.insert(result.exit_code);
  }
  EXPECT_LE(stuck, 4);         // a release that dies with its coordinator is rare even here
  EXPECT_GT(successions, 60);  // some beyond the first coordinator of each job
  EXPECT_GT(rounds, 120);
  EXPECT_TRUE(ends.contains(0));
  EXPECT_TRUE(ends.contains(7));  // a spent budget ends with the worker's code
}

// Cost: messages grow with the number of agents, not with its square, and none is larger than for few.
TEST(Simulation, AThousandAgentsCostAThousandTimesOne) {
  const Result few = simulate({.seed = 5, .agents = 100, .faults = false});
  const Result many = simulate({.seed = 5, .agents = 1000, .faults = false});
  ASSERT_EQ(few.violation, "");
  ASSERT_EQ(many.violation, "");
  EXPECT_EQ(few.exit_code, 0);
  EXPECT_EQ(many.exit_code, 0);
  EXPECT_LT(many.messages, few.messages * 15);
  EXPECT_LT(many.largest_message, few.largest_message + 16);
}

struct Mutation {
  const char* name;
  std::function<void(Rules&)> apply;
};

class EveryRule : public testing::TestWithParam<Mutation> {};

TEST_P(EveryRule, IsNeeded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the release build shows it";
#endif
  Rules broken;
  GetParam().apply(broken);
  const auto failing = first_failing_seed(kSeedsForMutations, broken, 1);
  if (failing) {
    std::cout << "seed " << *failing << ": " << simulate({.seed = *failing, .rules = broken}).violation << "\n";
    return;
  }
  // Nothing forbidden happens, but jobs no longer end: at ten times the rate that the unbroken rules are allowed.
  std::string names;
  const int stuck = stuck_seeds(200, broken, names);
  std::cout << stuck << " of 200 seeds are stuck\n";
  EXPECT_GE(stuck, 20) << "the simulator does not notice";
}

// Not shown to be needed, and so not here: grant_counts_from_ping, newer_round_refuses_vote, stale_releases_refused and
// later_process_replaces. Without one of them 6,000 seeds run as with it.
INSTANTIATE_TEST_SUITE_P(
    Mutations, EveryRule,
    testing::Values(Mutation{"VotesWaitForTheLease", [](Rules& r) { r.vote_after = 0.2; }},
                    Mutation{"GrantsEndWorkers", [](Rules& r) { r.grant_ends_workers = false; }},
                    Mutation{"GrantsNeedAMajority", [](Rules& r) { r.grants_need_majority = false; }},
                    Mutation{"LeadingNeedsAMajority", [](Rules& r) { r.majority_needed = false; }},
                    Mutation{"HalfNeedsTheLowestRank", [](Rules& r) { r.half_needs_rank_0 = false; }},
                    Mutation{"OneVoteATerm", [](Rules& r) { r.one_vote_a_term = false; }},
                    Mutation{"TwoMajoritiesUntilCommitted", [](Rules& r) { r.both_rounds_until_committed = false; }},
                    Mutation{"RoundsWaitUntilTheLastOneIsGone", [](Rules& r) { r.wait_for_ready = false; }},
                    Mutation{"HolesAreFilled", [](Rules& r) { r.holes_are_filled = false; }},
                    Mutation{"TheBudgetIsInherited", [](Rules& r) { r.budget_is_inherited = false; }},
                    Mutation{"LostMembersEndTheRound", [](Rules& r) { r.lost_members_end_round = false; }},
                    Mutation{"FewSuccessorsAreNamed", [](Rules& r) { r.successors_named = 1000000; }}),
    [](const auto& mutation) { return std::string(mutation.param.name); });

}  // namespace
}  // namespace ddprun::rendezvous::simulation
