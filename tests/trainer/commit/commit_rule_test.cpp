// Tests the commit rule with single cases: each test passes reports and expects a decision. commit_simulation_test.cpp tests
// random cases.
#include "trainer/commit/commit_rule.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "common/base/error.hpp"
#include "tests/trainer/layout/sample_models.hpp"

namespace ddprun::trainer {
namespace {

using Ranks = std::vector<int>;
using Reports = std::vector<StepReport>;

StateLayout layout_on(StrategyKind strategy, bool mirror, const Ranks& nodes) {
  return layout_for(model_of_blocks(1, 96), {.strategy = strategy, .mirror = mirror}, nodes);
}

CommitDecision decide(const Reports& reports, const StateLayout& layout) {
  const NumberedLayout known{.layout_number = 0, .layout = &layout};
  return decide_commit(reports, std::span(&known, 1), layout);
}

// These functions return the reports of two ranks that wait in a collective. The first rank waits in agree() of step k + 1.
// The second rank has passed agree() and waits in the gather of the new weights.
StepReport in_agree(int rank, std::int64_t k) {
  return {.place = LayoutPlace{.rank = rank}, .made = k, .received = k, .gradients = k + 1, .agreed = k};
}
StepReport in_gather(int rank, std::int64_t k) {
  return {.place = LayoutPlace{.rank = rank}, .made = k + 1, .gradients = k + 1, .agreed = k + 1};
}
StepReport finished(int rank, std::int64_t k) {
  return {.place = LayoutPlace{.rank = rank}, .made = k, .received = k, .agreed = k};
}

Ranks receivers(const CommitDecision& decision) {
  std::set<int> ranks;
  for (const StateTransfer& one : decision.transfers) ranks.insert(one.to);
  return {ranks.begin(), ranks.end()};
}

TEST(CommitRule, NoSurvivorHasPassedAgree) {
  const StateLayout layout = layout_on(StrategyKind::kZero2, true, {0, 0, 0});
  const CommitDecision decision = decide({in_agree(0, 7), in_agree(1, 7), StepReport{}}, layout);
  EXPECT_EQ(decision.outcome, CommitOutcome::kReturn);
  EXPECT_EQ(decision.step, 7);
  EXPECT_EQ(decision.values_to, (Ranks{2}));
  EXPECT_TRUE(decision.complete.empty());
  EXPECT_EQ(receivers(decision), (Ranks{2}));
}

// This is the example in the preface of commit_rule.hpp.
TEST(CommitRule, OneSurvivorHasPassedAgree) {
  const StateLayout layout = layout_on(StrategyKind::kZero1, true, {0, 0, 0});
  const CommitDecision decision = decide({in_gather(0, 7), in_agree(1, 7), StepReport{}}, layout);
  EXPECT_EQ(decision.outcome, CommitOutcome::kComplete);
  EXPECT_EQ(decision.step, 8);
  EXPECT_EQ(decision.values_from, 0);
  EXPECT_EQ(decision.values_to, (Ranks{1, 2}));
  EXPECT_EQ(decision.complete, (Ranks{1}));
  EXPECT_TRUE(decision.receive_aside.empty());
  for (const StateTransfer& one : decision.transfers) {
    EXPECT_TRUE(layout.tensors[one.tensor].role != StateRole::kOptimizer || one.to == 2);
  }
  EXPECT_EQ(receivers(decision), (Ranks{0, 1, 2})) << "the gather of the weights is repeated";
}

TEST(CommitRule, SurvivorBetweenAgreeAndUpdateCompletesToo) {
  const StateLayout layout = layout_on(StrategyKind::kFsdp, true, {0, 0, 0});
  StepReport passed = in_agree(1, 7);
  passed.agreed = 8;
  const CommitDecision decision = decide({in_agree(0, 7), passed, StepReport{}}, layout);
  EXPECT_EQ(decision.step, 8);
  EXPECT_EQ(decision.values_from, 1);
  EXPECT_EQ(decision.complete, (Ranks{0, 1}));
  EXPECT_EQ(receivers(decision), (Ranks{2}));
}

TEST(CommitRule, GradientsOfTheNextStepAreNotUsed) {
  const StateLayout layout = layout_on(StrategyKind::kFsdp, true, {0, 0, 0});
  StepReport ahead = finished(0, 8);
  ahead.gradients = 9;
  const CommitDecision decision = decide({ahead, finished(1, 8), StepReport{}}, layout);
  EXPECT_EQ(decision.outcome, CommitOutcome::kReturn);
  EXPECT_EQ(decision.step, 8);
  EXPECT_TRUE(decision.complete.empty());
}

TEST(CommitRule, FailedUpdateIsReplacedByTheMirrors) {
  const StateLayout layout = layout_on(StrategyKind::kZero2, true, {0, 0, 0});
  StepReport failed = in_agree(1, 7);
  failed.agreed = 8;
  failed.made = kNoStep;
  const CommitDecision decision = decide({in_gather(0, 7), failed, in_agree(2, 7)}, layout);
  EXPECT_EQ(decision.outcome, CommitOutcome::kComplete);
  EXPECT_EQ(decision.complete, (Ranks{2}));
  for (const StateTransfer& one : decision.transfers) {
    EXPECT_TRUE(layout.tensors[one.tensor].role != StateRole::kOptimizer || one.to == 1);
  }
}

TEST(CommitRule, TwoNeighboursReturnToTheCheckpoint) {
  const StateLayout layout = layout_on(StrategyKind::kZero1, true, {0, 0, 0, 0});
  const CommitDecision decision = decide({in_gather(0, 7), in_agree(1, 7), StepReport{}, StepReport{}}, layout);
  EXPECT_EQ(decision.outcome, CommitOutcome::kCheckpoint);
  EXPECT_EQ(decision.step, kNoStep);
  EXPECT_EQ(decision.reason,
            "no remaining rank has elements 64 to 95 of block0.weight (parameter) at step 8, which only ranks 2 and 3 had");
  EXPECT_TRUE(decision.transfers.empty());
}

TEST(CommitRule, WithoutMirrorOneLossReturnsToTheCheckpoint) {
  const StateLayout layout = layout_on(StrategyKind::kFsdp, false, {0, 0, 0});
  const CommitDecision decision = decide({in_agree(0, 7), in_agree(1, 7), StepReport{}}, layout);
  EXPECT_EQ(decision.outcome, CommitOutcome::kCheckpoint);
  EXPECT_EQ(decision.reason,
            "no remaining rank has elements 64 to 95 of block0.weight (parameter) at step 7, which only rank 2 had");
}

TEST(CommitRule, NoStateIsLeft) {
  const StateLayout layout = layout_on(StrategyKind::kDdp, false, {0, 0});
  EXPECT_EQ(decide({StepReport{}, StepReport{.agreed = 8}}, layout).reason, "no remaining rank has a training state");
}

TEST(CommitRule, EvaluationIsNotLost) {
  const StateLayout layout = layout_on(StrategyKind::kDdp, false, {0, 0, 0});
  StepReport evaluated = finished(1, 7);
  evaluated.evaluated = true;
  const CommitDecision decision = decide({finished(0, 7), evaluated, finished(2, 7)}, layout);
  EXPECT_EQ(decision.values_from, 1);
  EXPECT_EQ(decision.values_to, (Ranks{0, 2}));
  EXPECT_TRUE(decision.transfers.empty()) << "the pieces are equal";
}

TEST(CommitRule, RankWithTwoLayoutsIsAHolderInBoth) {
  const ModelShapes shapes = model_of_blocks(1, 96);
  const StateLayout before = layout_for(shapes, {.strategy = StrategyKind::kFsdp, .mirror = false}, {0, 0, 0});
  const StateLayout next = layout_for(shapes, {.strategy = StrategyKind::kFsdp, .mirror = false}, {0, 0});
  const std::vector<NumberedLayout> known{{.layout_number = 4, .layout = &before}, {.layout_number = 5, .layout = &next}};
  // The job shrinks from three ranks to two. Rank 2 of the old layout sent its pieces of the state, and was lost before the
  // switch to the new layout. Rank 1 has received all pieces that it needs, but rank 0 has not.
  StepReport first = finished(0, 7);
  first.place = LayoutPlace{.layout_number = 4, .rank = 0};
  StepReport second = finished(1, 7);
  second.place = LayoutPlace{.layout_number = 4, .rank = 1};
  second.next = LayoutPlace{.layout_number = 5, .rank = 1};
  const CommitDecision decision = decide_commit(Reports{first, second}, known, next);
  EXPECT_EQ(decision.outcome, CommitOutcome::kReturn) << decision.reason;
  EXPECT_EQ(receivers(decision), (Ranks{0}));
  second.next.reset();
  EXPECT_EQ(decide_commit(Reports{first, second}, known, next).outcome, CommitOutcome::kCheckpoint);
}

TEST(CommitRule, UnknownLayoutIsAnInternalError) {
  const StateLayout layout = layout_on(StrategyKind::kDdp, false, {0});
  StepReport report = finished(0, 7);
  report.place->layout_number = 3;
  EXPECT_THROW(decide({report}, layout), InternalError);
}

// With strategy ddp, the commit rule must make the same decision as the older rule in trainer/state/state_sharing.cpp: the
// most advanced state is sent to the other ranks. There is one difference. If the state of a rank is complete except for the
// result of the evaluation, the rank receives only that result.
TEST(CommitRule, DdpFollowsTheMostAdvancedRank) {
  int complete = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](int last) { return std::uniform_int_distribution(0, last)(random); };
    const int world = 1 + up_to(7);
    const StateLayout layout = layout_for(model_of_blocks(2, 40), {}, random_nodes(random, world));
    Reports reports;
    std::vector<std::int64_t> progress;  // result of progress_of() (state_sharing.hpp): 2 * step + evaluated, or -1
    for (int rank = 0; rank < world; ++rank) {
      const bool whole = up_to(3) != 0;
      reports.push_back(whole ? finished(rank, 7 + up_to(1)) : StepReport{});
      reports.back().evaluated = whole && up_to(2) == 0;
      progress.push_back(whole ? 2 * reports.back().made + (reports.back().evaluated ? 1 : 0) : -1);
    }
    const std::int64_t most = *std::max_element(progress.begin(), progress.end());
    const CommitDecision decision = decide(reports, layout);
    if (most == -1) {
      EXPECT_EQ(decision.outcome, CommitOutcome::kCheckpoint);
      continue;
    }
    EXPECT_EQ(decision.step, most / 2);
    EXPECT_EQ(progress[static_cast<std::size_t>(decision.values_from)], most);
    Ranks behind;
    Ranks not_equal;
    for (int rank = 0; rank < world; ++rank) {
      if (progress[static_cast<std::size_t>(rank)] / 2 != most / 2 || progress[static_cast<std::size_t>(rank)] == -1)
        behind.push_back(rank);
      if (progress[static_cast<std::size_t>(rank)] != most) not_equal.push_back(rank);
    }
    EXPECT_EQ(receivers(decision), behind) << "seed " << seed;
    EXPECT_EQ(decision.values_to, not_equal) << "seed " << seed;
    EXPECT_TRUE(decision.complete.empty());
    for (const int rank : decision.receive_aside) EXPECT_EQ(progress[static_cast<std::size_t>(rank)] / 2, most / 2 - 1);
    EXPECT_EQ(decision.outcome == CommitOutcome::kComplete, !decision.receive_aside.empty());
    complete += decision.outcome == CommitOutcome::kComplete ? 1 : 0;
    for (const StateTransfer& one : decision.transfers) {
      EXPECT_TRUE(one.hop == 1 || progress[static_cast<std::size_t>(one.from)] / 2 == most / 2);
    }
  }
  EXPECT_GT(complete, 500);
}

}  // namespace
}  // namespace ddprun::trainer
