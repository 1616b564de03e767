// Tests the layouts of the strategies: the examples and the table of memory in the header, and rules that must hold for 500
// random models.
#include "trainer/layout/strategy_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "common/base/error.hpp"
#include "tests/trainer/layout/sample_models.hpp"

namespace ddprun::trainer {
namespace {

using Ranks = std::vector<int>;

TEST(FlatBlocks, TensorsAreAlignedAndChunksAreEqual) {
  const ModelShapes shapes{.tensors = {{.name = "a", .shape = {4, 5}}, {.name = "b", .shape = {30}}}};
  const std::vector<FlatBlock> blocks = flat_blocks(shapes, 2);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].tensors[1].offset, 32);
  EXPECT_EQ(blocks[0].chunk, 32);
  EXPECT_EQ(blocks[0].elements, 64);
}

TEST(FlatBlocks, EachKindHasItsBuffer) {
  const ModelShapes shapes{.tensors = {{.name = "a", .shape = {8}},
                                       {.name = "frozen", .shape = {8}, .trained = false},
                                       {.name = "half", .type = ElementType::kBf16, .shape = {8}},
                                       {.name = "buffer", .shape = {8}, .is_buffer = true},
                                       {.name = "b", .shape = {8}},
                                       {.name = "later", .shape = {8}, .block = 1}}};
  const std::vector<FlatBlock> blocks = flat_blocks(shapes, 1);
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[0].tensors.size(), 2u);
  EXPECT_EQ(blocks[0].tensors[1].tensor, 4u);
  EXPECT_FALSE(blocks[1].trained);
  EXPECT_EQ(blocks[2].chunk, 32) << "64 bytes of half precision";
  EXPECT_EQ(blocks[3].block, 1);
}

TEST(Mirrors, NextRankOnOneNode) {
  EXPECT_EQ(mirrors_of(Ranks{0, 0, 0}), (Ranks{1, 2, 0}));
}

TEST(Mirrors, SamePlaceOnTheNextNode) {
  EXPECT_EQ(mirrors_of(Ranks{0, 0, 1, 1, 2, 2}), (Ranks{2, 3, 4, 5, 0, 1}));
}

TEST(Mirrors, NodesMayInterleave) {
  EXPECT_EQ(mirrors_of(Ranks{0, 1, 0, 1}), (Ranks{1, 0, 3, 2}));
}

TEST(Mirrors, ArePermutationOnOtherNodes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) {
    const int world = std::uniform_int_distribution(2, 12)(random);
    std::vector<int> nodes = random_nodes(random, world);
    std::shuffle(nodes.begin(), nodes.end(), random);
    const Ranks mirrors = mirrors_of(nodes);
    EXPECT_EQ(std::set(mirrors.begin(), mirrors.end()).size(), nodes.size());
    int largest = 0;
    for (const int node : nodes) largest = std::max(largest, static_cast<int>(std::count(nodes.begin(), nodes.end(), node)));
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      const auto mirror = static_cast<std::size_t>(mirrors[rank]);
      EXPECT_NE(mirror, rank);
      EXPECT_TRUE(2 * largest > world || nodes[mirror] != nodes[rank]) << "round " << i;
    }
  }
}

// Returns the bytes per parameter that a rank needs, for a model of 2^20 parameters in 4 blocks on 4 ranks.
double bytes_per_parameter(StrategyKind strategy, bool mirror, int shard_size = 0) {
  const Parallelism parallelism{.strategy = strategy, .mirror = mirror, .shard_size = shard_size};
  const StateLayout layout = layout_for(model_of_blocks(4, 1 << 18), parallelism, {0, 0, 1, 1});
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(bytes_on(layout, rank), bytes_on(layout, 0));
  return static_cast<double>(bytes_on(layout, 0)) / (1 << 20);
}

TEST(StrategyLayout, MemoryIsThatOfTheTable) {
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kDdp, true), 16);
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kZero1, false), 8 + 8. / 4);
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kZero1, true), 8 + 8. / 4 + 8. / 4);
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kZero2, false), 4 + 12. / 4);
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kZero2, true), 4 + 12. / 4 + 12. / 4);
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kFsdp, false), 16. / 4);
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kFsdp, true), 16. / 4 + 12. / 4 + 4. / 4);
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kHybrid, true), 16. / 2) << "replicas are the second holders";
  EXPECT_EQ(bytes_per_parameter(StrategyKind::kHybrid, true, 4), 16. / 4 + 16. / 4) << "one replica: mirrored";
}

TEST(StrategyLayout, CoverageIsThatOfTheMirror) {
  const ModelShapes shapes = model_of_blocks(2, 1000);
  const auto coverage = [&](StrategyKind strategy, bool mirror, const Ranks& nodes) {
    return coverage_of(layout_for(shapes, {.strategy = strategy, .mirror = mirror}, nodes));
  };
  const Coverage all{.any_rank = true, .any_node = true};
  EXPECT_EQ(coverage(StrategyKind::kDdp, false, {0, 0, 1, 1}), all);
  EXPECT_EQ(coverage(StrategyKind::kHybrid, false, {0, 0, 1, 1}), all);
  for (const StrategyKind strategy : {StrategyKind::kZero1, StrategyKind::kZero2, StrategyKind::kFsdp}) {
    EXPECT_EQ(coverage(strategy, true, {0, 0, 1, 1}), all);
    EXPECT_EQ(coverage(strategy, true, {0, 0, 0, 1}), (Coverage{.any_rank = true}));
    EXPECT_EQ(coverage(strategy, true, {0, 0, 0, 0}), (Coverage{.any_rank = true}));
    EXPECT_EQ(coverage(strategy, false, {0, 0, 1, 1}), Coverage{});
  }
}

TEST(StrategyLayout, FrozenParametersAreNeverSentButShareTheSaving) {
  ModelShapes shapes{.tensors = {{.name = "base", .shape = {64}, .trained = false}, {.name = "lora", .shape = {32}}},
                     .optimizer = adamw_fields()};
  const StateLayout layout = layout_for(shapes, {.strategy = StrategyKind::kZero1}, {0, 0});
  for (const StatePiece& piece : layout.pieces) {
    if (layout.tensor_of(piece).name != "base") continue;
    EXPECT_EQ(layout.holder_sets[piece.holders].others, OtherRanks::kMake);
  }
  EXPECT_EQ(layout.first_holder(layout.pieces[0]), 0);
  EXPECT_EQ(layout.first_holder(layout.pieces[1]), 1);
}

TEST(StrategyLayout, ScalarsAndBuffersAreEverywhere) {
  const ModelShapes shapes{.tensors = {{.name = "w", .shape = {64}}, {.name = "mean", .shape = {3}, .is_buffer = true}},
                           .optimizer = adamw_fields()};
  const StateLayout layout = layout_for(shapes, {.strategy = StrategyKind::kFsdp}, {0, 0, 0});
  int found = 0;
  for (const StatePiece& piece : layout.pieces) {
    const std::string& name = layout.tensor_of(piece).name;
    if (name != "w.step" && name != "mean") continue;
    ++found;
    EXPECT_EQ(layout.holders_of(piece), (Ranks{0, 1, 2})) << name;
  }
  EXPECT_EQ(found, 2);
}

TEST(StrategyLayout, TwoTensorsWithOneNameAreRefused) {
  const ModelShapes shapes{.tensors = {{.name = "w", .shape = {1}}, {.name = "w", .shape = {1}}}};
  EXPECT_THROW(layout_for(shapes, {}, {0}), UsageError);
}

// Tests rules that hold for all strategies. A layout is valid and the same in each call. Replicas or mirrors cover the loss
// of any rank. A checkpoint contains each element once.
TEST(StrategyLayout, RulesHoldForRandomModels) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const int world = std::uniform_int_distribution(1, 8)(random);
    const std::vector<int> nodes = random_nodes(random, world);
    const ModelShapes shapes = random_model(random, 20);
    const Parallelism parallelism = random_parallelism(random, world);
    const StateLayout layout = layout_for(shapes, parallelism, nodes, seed % 2 == 0 ? kFlatAlignment : 8);
    ASSERT_NO_THROW(check_layout(layout)) << "seed " << seed;
    EXPECT_EQ(layout, layout_for(shapes, parallelism, nodes, seed % 2 == 0 ? kFlatAlignment : 8));
    const bool covers = world > 1 && (parallelism.strategy == StrategyKind::kDdp || parallelism.mirror ||
                                      (parallelism.strategy == StrategyKind::kHybrid && parallelism.shard_size < world));
    EXPECT_TRUE(!covers || coverage_of(layout).any_rank) << "seed " << seed;
    std::int64_t written = 0;
    for (int rank = 0; rank < world; ++rank) {
      for (const std::size_t i : pieces_written_by(layout, rank)) written += layout.bytes_of_piece(layout.pieces[i]);
    }
    std::int64_t saved = 0;
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.role != StateRole::kGradient) saved += tensor.elements() * bytes_of(tensor.type);
    }
    EXPECT_EQ(written, saved) << "seed " << seed;
  }
}

TEST(StrategyLayout, UpdateNeedsOnlySlicesOfItsRank) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const int world = std::uniform_int_distribution(2, 8)(random);
    const StateLayout layout =
        layout_for(random_model(random), random_parallelism(random, world), random_nodes(random, world), 8);
    for (const StatePiece& piece : layout.pieces) {
      const TensorSpec& tensor = layout.tensor_of(piece);
      if (tensor.role != StateRole::kOptimizer || tensor.shape.empty()) continue;
      for (const StatePiece& other : layout.pieces) {
        const TensorSpec& needed = layout.tensor_of(other);
        const bool overlaps = other.range.begin < piece.range.end && piece.range.begin < other.range.end;
        if (needed.role == StateRole::kOptimizer || needed.role == StateRole::kBuffer || !overlaps ||
            !tensor.name.starts_with(needed.name + ".")) {
          continue;
        }
        for (const int rank : layout.holder_sets[piece.holders].ranks) {
          EXPECT_TRUE(layout.makes(other, rank)) << "seed " << seed << ": " << text_of(needed, other.range);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddprun::trainer
