// Tests which ranks count as corrupt for given digests of all ranks, at which steps digests are compared, and the error
// messages.
#include "trainer/state/state_comparison.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "tests/common/temporary_folder.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/surroundings/fault_injection.hpp"

namespace ddprun::trainer {
namespace {

using Ranks = std::vector<int>;

// Calls judge_states(). Each rank has a digest of one number. Only the ranks in `witnesses` vote. If `witnesses` is empty, all
// ranks vote.
StateVerdict judged(const std::vector<std::int64_t>& digests, Ranks witnesses = {}) {
  std::vector<StateDigest> of_ranks;
  for (const std::int64_t digest : digests) of_ranks.push_back({7, digest});
  if (witnesses.empty()) {
    witnesses.resize(digests.size());
    std::iota(witnesses.begin(), witnesses.end(), 0);
  }
  return judge_states(of_ranks, witnesses);
}

TEST(StateComparison, EqualRanksAreNotCorrupt) {
  for (const std::size_t world : {2U, 3U, 8U}) EXPECT_EQ(judged(std::vector<std::int64_t>(world, 5)).corrupt, Ranks{});
}

TEST(StateComparison, TheMinorityIsCorrupt) {
  EXPECT_EQ(judged({9, 5, 5}).corrupt, Ranks{0});
  EXPECT_EQ(judged({5, 5, 9}).corrupt, Ranks{2});
  EXPECT_EQ(judged({5, 9, 5, 8, 5}).corrupt, (Ranks{1, 3}));
  EXPECT_EQ(judged({5, 9, 5, 9, 5}).corrupt, (Ranks{1, 3}));
  EXPECT_TRUE(judged({5, 9, 5, 9, 5}).majority);
}

TEST(StateComparison, WithoutAMajorityNoRankIsTrusted) {
  for (const std::vector<std::int64_t>& digests :
       std::vector<std::vector<std::int64_t>>{{5, 9}, {5, 5, 9, 9}, {1, 2, 3}, {5, 5, 1, 2}}) {
    const StateVerdict verdict = judged(digests);
    EXPECT_FALSE(verdict.majority);
    EXPECT_EQ(verdict.corrupt.size(), digests.size());
  }
}

TEST(StateComparison, BothHalvesOfADigestCount) {
  const std::vector<StateDigest> of_ranks{{1, 5}, {1, 5}, {2, 5}};
  EXPECT_EQ(judge_states(of_ranks, Ranks{0, 1, 2}).corrupt, Ranks{2});
}

// A rank that received its state from another rank must not vote. If it voted, a corrupt survivor could win against the other
// survivor, because a replacement with the same corrupt state would vote for it.
TEST(StateComparison, ARankThatReceivedItsStateHasNoVote) {
  const StateVerdict torn = judged({9, 5, 9}, {0, 1});
  EXPECT_FALSE(torn.majority);
  EXPECT_EQ(torn.corrupt, (Ranks{0, 1, 2}));
  const StateVerdict named = judged({9, 5, 5, 9, 9}, {0, 1, 2});
  EXPECT_TRUE(named.majority);
  EXPECT_EQ(named.corrupt, (Ranks{0, 3, 4}));
  EXPECT_EQ(judged({5, 5}, {0}).corrupt, Ranks{});
  EXPECT_EQ(judged({5, 9}, {0}).corrupt, Ranks{1});  // the receiver is corrupt, because the state changed while it was sent
}

TEST(StateComparison, NamesTheDifferentTensors) {
  const std::vector<std::string> one{"fc.weight"}, many{"a", "b", "c", "d"};
  const std::string named = corruption_text({.corrupt = {1}}, 3, 12, one, 6);
  EXPECT_NE(named.find("after step 12 from that of 2 other ranks (1 of 6 tensors: fc.weight)"), std::string::npos) << named;
  const std::string torn = corruption_text({.corrupt = {0, 1}, .majority = false}, 2, 12, many, 6);
  EXPECT_NE(torn.find("of ranks 0 and 1 differ after step 12 (4 of 6 tensors: a, b, c, ...)"), std::string::npos) << torn;
  EXPECT_NE(torn.find("The correct state is unknown, so none is kept"), std::string::npos) << torn;
}

TEST(StateComparison, HasItsErrorKindAndExitCode) {
  const Failure failure = classify(std::make_exception_ptr(CorruptStateError("x", true)));
  EXPECT_EQ(failure.kind, channel::ErrorKind::kCorruptState);
  EXPECT_EQ(failure.exit_code, 88);
  EXPECT_TRUE(failure.others_suspect);
  EXPECT_FALSE(classify(std::make_exception_ptr(CorruptStateError("x", false))).others_suspect);
}

TEST(StateComparison, RunsAtConfiguredStepsAndBeforeSaves) {
  TrainConfig config;
  config.batch_size = 10;
  config.epochs = 3;
  const RunLength length = run_length(config, 100);
  const auto steps = [&] {
    std::vector<std::int64_t> found;
    for (std::int64_t step = 1; step <= length.total_steps; ++step)
      if (compares_after(length, config, step)) found.push_back(step);
    return found;
  };
  EXPECT_EQ(steps(), std::vector<std::int64_t>{});
  config.checkpoint.every_steps = 8;
  EXPECT_EQ(steps(), std::vector<std::int64_t>{});
  config.ddp.compare_every_steps = 12;
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{8, 12, 16, 24, 30}));
  config.checkpoint.every_steps = 0;
  config.checkpoint.keep_best = 1;  // adds a checkpoint after each evaluation
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{10, 12, 20, 24, 30}));
}

TEST(StateComparison, AnInjectedFlipHappensOncePerRunDirectory) {
  const test::TemporaryFolder folder;
  const auto faults = parse_faults("flip rank=1 step=5", "--chaos");
  EXPECT_FALSE(Faults(faults, 0, 0, folder.path()).flips(5));
  const Faults meant(faults, 1, 0, folder.path());
  EXPECT_FALSE(meant.flips(4));
  EXPECT_FALSE(meant.poisons(5));
  meant.at(FaultPhase::kStep, 5);  // does nothing, because the training loop itself injects a bit flip
  EXPECT_TRUE(meant.flips(5));
  EXPECT_FALSE(meant.flips(5));  // the flip is injected only once, even if the same process repeats the step
  EXPECT_FALSE(Faults(faults, 1, 1, folder.path()).flips(5));
}

}  // namespace
}  // namespace ddprun::trainer
