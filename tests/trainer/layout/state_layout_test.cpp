// Tests the example in the header (a weight of 10 elements under zero1 on 3 ranks), and the rules that check_layout() enforces.
#include "trainer/layout/state_layout.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

using Ranks = std::vector<int>;

// Returns the layout of the example in the header. Tensor 0 is a weight, and all ranks have each of its slices. Tensor 1 is an
// optimizer moment, and two ranks have each of its slices. Tensor 2 is a gradient.
StateLayout example() {
  StateLayout layout{.nodes = {0, 0, 1}};
  layout.tensors = {{.name = "fc.weight", .shape = {5, 2}},
                    {.name = "fc.weight.exp_avg", .role = StateRole::kOptimizer, .shape = {5, 2}},
                    {.name = "fc.weight", .role = StateRole::kGradient, .shape = {5, 2}}};
  layout.holder_sets = {{.ranks = {0, 1}, .others = OtherRanks::kReceive},
                        {.ranks = {1, 2}, .others = OtherRanks::kReceive},
                        {.ranks = {2, 0}, .others = OtherRanks::kReceive},
                        {.ranks = {0, 1}},
                        {.ranks = {1, 2}},
                        {.ranks = {2, 0}},
                        {.ranks = {0}, .others = OtherRanks::kMake}};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto begin = static_cast<std::int64_t>(4 * i);
    layout.pieces.push_back({.tensor = 0, .range = {begin, std::min<std::int64_t>(10, begin + 4)}, .holders = i});
  }
  for (std::size_t i = 0; i < 3; ++i) layout.pieces.push_back({.tensor = 1, .range = layout.pieces[i].range, .holders = i + 3});
  layout.pieces.push_back({.tensor = 2, .range = {0, 10}, .holders = 6});
  return layout;
}

std::string error_after(const std::function<void(StateLayout&)>& change) {
  StateLayout layout = example();
  change(layout);
  try {
    check_layout(layout);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(StateLayout, MakersAreListedAndOthersReceive) {
  const StateLayout layout = example();
  check_layout(layout);
  const StatePiece& weight = layout.pieces[2];
  EXPECT_TRUE(layout.makes(weight, 2) && layout.makes(weight, 0) && !layout.makes(weight, 1));
  EXPECT_TRUE(layout.holds(weight, 1));
  EXPECT_EQ(layout.holders_of(weight), (Ranks{2, 0, 1}));
  const StatePiece& moment = layout.pieces[5];
  EXPECT_FALSE(layout.holds(moment, 1));
  EXPECT_EQ(layout.holders_of(moment), (Ranks{2, 0}));
}

TEST(StateLayout, FirstAndSecondHolder) {
  StateLayout layout = example();
  EXPECT_EQ(layout.first_holder(layout.pieces[4]), 1);
  EXPECT_EQ(layout.second_holder(layout.pieces[4]), 2);
  EXPECT_EQ(layout.second_holder(layout.pieces[6]), 1) << "every rank makes it";
  layout.holder_sets[4] = {.ranks = {1}};
  EXPECT_EQ(layout.second_holder(layout.pieces[4]), std::nullopt);
  layout.holder_sets[4].others = OtherRanks::kReceive;
  EXPECT_EQ(layout.second_holder(layout.pieces[4]), std::nullopt) << "a receiver cannot complete a piece";
}

TEST(StateLayout, CountsBytesOfARank) {
  const StateLayout layout = example();
  EXPECT_EQ(bytes_on(layout, 0, StateRole::kParameter), 40);
  EXPECT_EQ(bytes_on(layout, 0, StateRole::kOptimizer), 4 * (4 + 2));
  EXPECT_EQ(bytes_on(layout, 1, StateRole::kOptimizer), 4 * (4 + 4));
  EXPECT_EQ(bytes_on(layout, 0), 40 + 24 + 40);
}

TEST(StateLayout, FirstHolderWritesAPieceButNoGradient) {
  const StateLayout layout = example();
  EXPECT_EQ(pieces_written_by(layout, 0), (std::vector<std::size_t>{0, 3}));
  EXPECT_EQ(pieces_written_by(layout, 2), (std::vector<std::size_t>{2, 5}));
}

TEST(StateLayout, HoldersOfTheSamePiecesCompareThem) {
  const std::vector<ComparedPieces> groups = compared_pieces(example());
  ASSERT_EQ(groups.size(), 6u);
  EXPECT_EQ(groups[1].holders, (Ranks{1, 2, 0}));
  EXPECT_EQ(groups[1].pieces, (std::vector<std::size_t>{1}));
  EXPECT_EQ(groups[4].holders, (Ranks{1, 2}));
}

TEST(StateLayout, OnlyPiecesWithTwoHoldersAreCompared) {
  StateLayout layout = example();
  layout.holder_sets[3] = {.ranks = {0}};
  EXPECT_EQ(compared_pieces(layout).size(), 5u);
}

TEST(StateLayout, CoverageFollowsTheMakers) {
  StateLayout layout = example();
  EXPECT_EQ(coverage_of(layout), (Coverage{.any_rank = true, .any_node = false})) << "ranks 0 and 1 are on one node";
  layout.nodes = {0, 1, 2};
  EXPECT_EQ(coverage_of(layout), (Coverage{.any_rank = true, .any_node = true}));
  layout.holder_sets[0].ranks = {0};
  EXPECT_EQ(coverage_of(layout), (Coverage{.any_rank = false, .any_node = false})) << "receivers have no moments";
}

TEST(StateLayout, CoverageOfOneNodeDoesNotIncludeIt) {
  StateLayout layout = example();
  layout.nodes = {0, 0, 0};
  EXPECT_EQ(coverage_of(layout), (Coverage{.any_rank = true, .any_node = false}));
}

TEST(StateLayout, ChecksItsRules) {
  const std::string start = "the layout of the training state is broken: ";
  EXPECT_EQ(error_after([](StateLayout& l) { l.nodes.clear(); }), start + "it has no rank");
  EXPECT_EQ(error_after([](StateLayout& l) { l.pieces[1].range.begin = 5; }),
            start + "elements 5 to 7 of fc.weight (parameter) leaves a gap or overlaps the previous piece");
  EXPECT_EQ(error_after([](StateLayout& l) { l.pieces.pop_back(); }), start + "the pieces of fc.weight do not cover it");
  EXPECT_EQ(error_after([](StateLayout& l) { std::swap(l.pieces[2], l.pieces[3]); }),
            start + "elements 8 to 9 of fc.weight (parameter) is listed after a piece of a later tensor");
  EXPECT_EQ(error_after([](StateLayout& l) { l.holder_sets[0].ranks = {0, 3}; }), start + "a holder set lists rank 3");
  EXPECT_EQ(error_after([](StateLayout& l) { l.holder_sets[0].ranks = {1, 1}; }), start + "a holder set lists rank 1 twice");
  EXPECT_EQ(error_after([](StateLayout& l) { l.holder_sets[0].ranks.clear(); }), start + "a holder set has no rank");
  EXPECT_EQ(error_after([](StateLayout& l) { l.pieces[0].holders = 9; }), start + "a piece has an unknown index");
  EXPECT_EQ(error_after([](StateLayout& l) { l.pieces[0].range.end = 0; }),
            start + "elements 0 to -1 of fc.weight (parameter) is an empty piece");
  EXPECT_EQ(error_after([](StateLayout& l) { l.tensors[2].role = StateRole::kParameter; }),
            start + "two tensors have the name fc.weight");
}

TEST(StateLayout, ShapesThatAreTooLargeAreRefused) {
  TensorSpec tensor{.name = "w", .shape = {std::int64_t{1} << 40, std::int64_t{1} << 40}};
  EXPECT_THROW(tensor.elements(), InternalError);
  tensor.shape = {};
  EXPECT_EQ(tensor.elements(), 1);
}

}  // namespace
}  // namespace ddprun::trainer
