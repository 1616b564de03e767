// Tests transfer plans: the example in the header, and rules that must hold for random pairs of layouts. The tests follow each
// element through the transfers.
#include "trainer/layout/transfer_plan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "common/base/error.hpp"
#include "tests/trainer/layout/sample_models.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::int64_t kAlignment = 8;

// Elements contains, for each rank, the pairs (tensor, element) that the rank has.
using Element = std::pair<std::size_t, std::int64_t>;
using Elements = std::vector<std::set<Element>>;

Elements held_by(const StateLayout& now, std::span<const StateSource> sources) {
  Elements all(now.nodes.size());
  std::map<std::pair<StateRole, std::string>, std::size_t> index;
  for (std::size_t i = 0; i < now.tensors.size(); ++i) index[{now.tensors[i].role, now.tensors[i].name}] = i;
  for (const StateSource& source : sources) {
    for (std::size_t i = 0; i < source.holders.size(); ++i) {
      const StatePiece& piece = source.layout->pieces[i];
      const TensorSpec& tensor = source.layout->tensor_of(piece);
      const std::size_t in_now = index.at({tensor.role, tensor.name});
      for (const int rank : source.holders[i]) {
        if (rank == kFromCheckpoint) continue;
        for (std::int64_t e = piece.range.begin; e < piece.range.end; ++e) {
          all[static_cast<std::size_t>(rank)].emplace(in_now, e);
        }
      }
    }
  }
  return all;
}

struct Traffic {
  std::vector<std::int64_t> sent{};  // number of bytes that each rank sends
  std::int64_t read = 0;             // number of bytes that are read from the checkpoint
  // The number of times that a node receives an element. The key consists of node, tensor and element.
  std::map<std::tuple<int, std::size_t, std::int64_t>, int> enters_node{};
};

// Executes the transfers in the planned order. Checks that each sender has the elements that it sends, and that no rank
// receives an element twice.
Traffic carry_out(const StateLayout& now, const std::vector<StateTransfer>& transfers, Elements& held) {
  Traffic traffic{.sent = std::vector<std::int64_t>(now.nodes.size(), 0)};
  for (const StateTransfer& one : transfers) {
    const auto to = static_cast<std::size_t>(one.to);
    const bool from_disk = one.from == kFromCheckpoint;
    const std::int64_t bytes = one.range.size() * bytes_of(now.tensors[one.tensor].type);
    (from_disk ? traffic.read : traffic.sent[static_cast<std::size_t>(one.from)]) += bytes;
    for (std::int64_t e = one.range.begin; e < one.range.end; ++e) {
      EXPECT_TRUE(from_disk || held[static_cast<std::size_t>(one.from)].contains({one.tensor, e}));
      EXPECT_TRUE(held[to].emplace(one.tensor, e).second) << "received twice";
      if (from_disk || now.nodes[static_cast<std::size_t>(one.from)] != now.nodes[to]) {
        ++traffic.enters_node[{now.nodes[to], one.tensor, e}];
      }
    }
  }
  return traffic;
}

void expect_complete(const StateLayout& now, const Elements& held, const Traffic& traffic) {
  for (const StatePiece& piece : now.pieces) {
    if (now.tensor_of(piece).role == StateRole::kGradient) continue;
    for (const int rank : now.holders_of(piece)) {
      for (std::int64_t e = piece.range.begin; e < piece.range.end; ++e) {
        EXPECT_TRUE(held[static_cast<std::size_t>(rank)].contains({piece.tensor, e}));
      }
    }
  }
  for (const auto& [where, times] : traffic.enters_node) EXPECT_EQ(times, 1) << "an element enters a node twice";
}

std::vector<HolderProgress> all_at(int world, std::int64_t step) {
  std::vector<HolderProgress> progress;
  for (int rank = 0; rank < world; ++rank) progress.push_back({.rank_now = rank, .step = step});
  return progress;
}

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TransferPlan, ReplacedRankReceivesFromItsMirrorAndItsNode) {
  const ModelShapes shapes = model_of_blocks(1, 64);
  const StateLayout layout = layout_for(shapes, {.strategy = StrategyKind::kZero1}, {0, 0, 1, 1});
  std::vector<HolderProgress> progress = all_at(4, 9);
  progress[3] = {.rank_now = 3};
  std::int64_t moments_from_mirror = 0;
  for (const StateTransfer& one : plan_transfers(layout, progress, layout)) {
    EXPECT_EQ(one.to, 3);
    EXPECT_EQ(one.hop, 0);
    if (layout.tensors[one.tensor].role == StateRole::kParameter) {
      EXPECT_EQ(one.from, 2) << "weights are on its own node";
    } else {
      EXPECT_EQ(one.from, 1) << "the mirror of its slice, and the rank that it mirrors";
      moments_from_mirror += one.range.size();
    }
  }
  EXPECT_EQ(moments_from_mirror, 2 * (16 + 16));
}

TEST(TransferPlan, UnchangedStateNeedsNoTransfer) {
  const StateLayout layout = layout_for(model_of_blocks(2, 100), {.strategy = StrategyKind::kFsdp}, {0, 0, 1});
  EXPECT_TRUE(plan_transfers(layout, all_at(3, 5), layout).empty());
}

TEST(TransferPlan, MostAdvancedRanksOfDdpSendTheWholeState) {
  const StateLayout layout = layout_for(model_of_blocks(3, 100), {.strategy = StrategyKind::kDdp}, {0, 1, 2, 3});
  std::vector<HolderProgress> progress = all_at(4, 7);
  progress[0].step = progress[3].step = 8;
  progress[2] = {.rank_now = 2};
  std::vector<std::int64_t> sent(4, 0);
  for (const StateTransfer& one : plan_transfers(layout, progress, layout)) {
    EXPECT_TRUE(one.from == 0 || one.from == 3);
    EXPECT_TRUE(one.to == 1 || one.to == 2);
    sent[static_cast<std::size_t>(one.from)] += one.range.size();
  }
  EXPECT_EQ(sent[0], sent[3]);
  EXPECT_EQ(sent[0] + sent[3], 2 * 3 * 3 * 100);
}

TEST(TransferPlan, WorldMayChange) {
  const ModelShapes shapes = model_of_blocks(2, 100);
  const StateLayout before = layout_for(shapes, {.strategy = StrategyKind::kFsdp}, {0, 0, 1, 1});
  const StateLayout now = layout_for(shapes, {.strategy = StrategyKind::kFsdp}, {0, 1, 1});
  // Rank 1 is lost, so the ranks after it get new numbers.
  const std::vector<HolderProgress> progress{
      {.rank_now = 0, .step = 3}, {}, {.rank_now = 1, .step = 3}, {.rank_now = 2, .step = 3}};
  const StateSource source = source_at(before, progress, 3);
  Elements held = held_by(now, std::span(&source, 1));
  const Traffic traffic = carry_out(now, plan_transfers(before, progress, now), held);
  expect_complete(now, held, traffic);
}

TEST(TransferPlan, LongPartsAreDividedAmongSenders) {
  const StateLayout before = layout_for(model_of_blocks(1, 1000), {.strategy = StrategyKind::kDdp}, {0, 1, 2});
  std::vector<HolderProgress> progress = all_at(3, 1);
  progress[2].step = -1;
  const StateSource source = source_at(before, progress, 1);
  std::vector<std::int64_t> sent(3, 0);
  for (const StateTransfer& one : plan_transfers(std::span(&source, 1), before, 400).transfers) {
    EXPECT_LE(one.range.size(), 100);
    sent[static_cast<std::size_t>(one.from)] += one.range.size();
  }
  EXPECT_EQ(sent[0], 1500);
  EXPECT_EQ(sent[1], 1500);
}

TEST(TransferPlan, NamesTheElementsThatNoRankHas) {
  const StateLayout layout = layout_for(model_of_blocks(1, 64), {.strategy = StrategyKind::kZero1, .mirror = false}, {0, 0});
  std::vector<HolderProgress> progress = all_at(2, 4);
  progress[1] = {.rank_now = 1};
  EXPECT_EQ(error_of([&] { plan_transfers(layout, progress, layout); }),
            "no rank and no file has elements 32 to 63 of block0.weight.exp_avg (optimizer)");
}

TEST(TransferPlan, NamesTensorsThatDiffer) {
  const StateLayout now = layout_for(model_of_blocks(2, 8), {}, {0});
  EXPECT_EQ(
      error_of([&] { plan_loading(layout_for(model_of_blocks(1, 8), {}, {0}), now); }),
      "the saved or received training state has no parameter named 'block1.weight'; expected F32 [8]. The state belongs to "
      "another model or optimizer");
  EXPECT_EQ(error_of([&] { plan_loading(layout_for(model_of_blocks(2, 9), {}, {0}), now); }),
            "the saved or received training state has the parameter 'block0.weight' as F32 [9]; expected F32 [8]. The state "
            "belongs to another model");
}

TEST(TransferPlan, CheckpointMayHaveMoreThanIsNeeded) {
  const StateLayout saved = layout_for(model_of_blocks(2, 8), {}, {0});
  const StateLayout now = layout_for(model_of_blocks(1, 8), {}, {0});
  EXPECT_EQ(plan_loading(saved, now).size(), 3u);
}

TEST(TransferPlan, EachMachineReadsACheckpointOnce) {
  const ModelShapes shapes = model_of_blocks(4, 1000);
  const StateLayout saved = layout_for(shapes, {.strategy = StrategyKind::kZero1}, {0, 0, 0});
  const StateLayout now = layout_for(shapes, {.strategy = StrategyKind::kDdp}, {0, 0, 0, 0, 1, 1, 1, 1});
  const StateSource source = source_in_checkpoint(saved);
  Elements held = held_by(now, std::span(&source, 1));
  const std::vector<StateTransfer> transfers = plan_loading(saved, now);
  const Traffic traffic = carry_out(now, transfers, held);
  expect_complete(now, held, traffic);
  EXPECT_EQ(traffic.read, 2 * 4 * 1000 * 12);
  std::vector<std::int64_t> read(8, 0);
  for (const StateTransfer& one : transfers) {
    if (one.from == kFromCheckpoint) read[static_cast<std::size_t>(one.to)] += one.range.size() * 4;
  }
  for (const std::int64_t bytes : read) EXPECT_NEAR(static_cast<double>(bytes), 12000, 1400) << "ranks share the reading";
}

TEST(TransferPlan, EveryStrategyLoadsEveryOthersCheckpoint) {
  int pairs = 0;
  std::mt19937_64 random(3);
  const ModelShapes shapes = random_model(random, 20);
  for (const StrategyKind from : kAllStrategies) {
    for (int world_from = 1; world_from <= 4; ++world_from) {
      const int shards_from = from == StrategyKind::kHybrid ? (world_from % 2 == 0 ? 2 : world_from) : 0;
      const StateLayout saved = layout_for(shapes, {.strategy = from, .shard_size = shards_from},
                                           std::vector<int>(static_cast<std::size_t>(world_from), 0), kAlignment);
      for (const StrategyKind to : kAllStrategies) {
        for (int world = 1; world <= 4; ++world) {
          const int shards = to == StrategyKind::kHybrid ? (world % 2 == 0 ? 2 : world) : 0;
          const StateLayout now = layout_for(shapes, {.strategy = to, .shard_size = shards},
                                             std::vector<int>(static_cast<std::size_t>(world), 0), kAlignment);
          Elements held(now.nodes.size());
          const Traffic traffic = carry_out(now, plan_loading(saved, now), held);
          expect_complete(now, held, traffic);
          ++pairs;
        }
      }
    }
  }
  EXPECT_EQ(pairs, 400);
}

// Plans transfers between random layouts, with lost ranks and with ranks at two different steps. Each plan must be complete,
// or no rank has the elements that the plan reports as missing.
TEST(TransferPlan, RandomPlansAreCompleteAndBalanced) {
  int without_source = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](int last) { return std::uniform_int_distribution(0, last)(random); };
    const ModelShapes shapes = random_model(random);
    const int world_before = 1 + up_to(7);
    const int world = 1 + up_to(7);
    const StateLayout before =
        layout_for(shapes, random_parallelism(random, world_before), random_nodes(random, world_before), kAlignment);
    const StateLayout now = layout_for(shapes, random_parallelism(random, world), random_nodes(random, world), kAlignment);
    std::vector<HolderProgress> progress;
    int next = 0;
    for (int rank = 0; rank < world_before; ++rank) {
      const bool lost = next >= world || up_to(4) == 0;
      progress.push_back({.rank_now = lost ? std::nullopt : std::optional(next++), .step = 6 + (up_to(3) == 0 ? 0 : 1)});
    }
    const std::int64_t step = most_advanced(progress);
    const StateSource source = source_at(before, progress, step);
    const TransferPlan plan = plan_transfers(std::span(&source, 1), now, 64);
    Elements held = held_by(now, std::span(&source, 1));
    if (plan.missing) {
      ++without_source;
      for (const std::set<Element>& has : held) {
        EXPECT_FALSE(has.contains({plan.missing->tensor, plan.missing->range.begin})) << "seed " << seed;
      }
      continue;
    }
    const Traffic traffic = carry_out(now, plan.transfers, held);
    expect_complete(now, held, traffic);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(without_source, 100);
  EXPECT_LT(without_source, 900);
}

}  // namespace
}  // namespace ddprun::trainer
