// Tests that a replacement with a different build of the program gets no state. Builds that the process group had at its
// start are accepted in later groups.
#include "trainer/state/program_builds.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/trainer/parallel/ranks.hpp"
#include "trainer/state/state_sharing.hpp"

namespace ddprun::trainer {
namespace {

constexpr StateDigest kFirst{1, 2}, kSecond{3, 4}, kThird{5, 6};

TEST(ProgramBuilds, AReplacementOfAnotherBuildGetsNoState) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  const Peers peers(rank->group, rank->environment.rank, 3, c10::kCPU);
  // Calls agree() with the build of each rank in `of_ranks`. `holds` lists which ranks have a state. A rank that has no state
  // is a new process.
  ProgramBuilds builds;
  const auto refusal = [&](const std::vector<StateDigest>& of_ranks, const std::vector<bool>& holds) -> std::string {
    const auto own = static_cast<std::size_t>(peers.rank());
    if (!holds[own]) builds = ProgramBuilds();
    try {
      const auto progress = builds.agree(of_ranks[own], holds[own] ? 7 + peers.rank() : kNoProgress, peers);
      for (std::size_t i = 0; i < holds.size(); ++i) {
        EXPECT_EQ(progress.at(i), holds[i] ? 7 + static_cast<std::int64_t>(i) : kNoProgress);
      }
    } catch (const OtherBuildError& error) {
      return error.what();
    }
    return "";
  };
  const std::string rest =
      " another build of the worker program than the ranks that hold the state, and may compute different results: the state "
      "is "
      "dropped, and all ranks start again from the newest checkpoint";

  EXPECT_EQ(refusal({kFirst, kFirst, kSecond}, {false, false, false}), "") << "nodes may have different builds";
  EXPECT_EQ(refusal({kFirst, kFirst, kSecond}, {true, false, false}), "") << "the build of rank 2 was there";
  EXPECT_EQ(refusal({kFirst, kThird, kSecond}, {true, false, true}), "rank 1 runs" + rest);
  EXPECT_EQ(refusal({kThird, kThird, kSecond}, {false, false, true}), "ranks 0, 1 run" + rest);
  EXPECT_EQ(refusal({kThird, kThird, kThird}, {false, false, false}), "") << "no rank holds state: all start together";
  EXPECT_EQ(refusal({kThird, kThird, kFirst}, {true, true, false}), "rank 2 runs" + rest) << "it was in no group with these";
}

TEST(ProgramBuilds, AProgramFindsItsFile) {
  const StateDigest own = digest_of_own_program();
  EXPECT_NE(own, StateDigest{});
  EXPECT_EQ(own, digest_of_own_program());
}

}  // namespace
}  // namespace ddprun::trainer
