// The suggestions of "did you mean", and the cases without one.
#include "common/base/suggest.hpp"

#include <gtest/gtest.h>

#include <array>

namespace ddprun {
namespace {

constexpr std::array<std::string_view, 6> kKeys{"optimizer", "batch_size", "epochs", "lr", "model", "max_steps"};

TEST(Suggest, FindsTheNearestName) {
  EXPECT_EQ(nearest("optimzer", kKeys), "optimizer");
  EXPECT_EQ(nearest("epoch", kKeys), "epochs");
  EXPECT_EQ(nearest("mdoel", kKeys), "model");
}

TEST(Suggest, DashesAndCaseAreNoMistakes) {
  EXPECT_EQ(nearest("batch-size", kKeys), "batch_size");
  EXPECT_EQ(nearest("Batch-Sizes", kKeys), "batch_size");
}

TEST(Suggest, ASwapCountsOne) {
  EXPECT_EQ(nearest("rl", kKeys), "lr");
}

TEST(Suggest, KeepsQuietWhenNothingIsNear) {
  EXPECT_EQ(nearest("colour", kKeys), "");
  EXPECT_EQ(nearest("x", kKeys), "") << "two edits turn x into lr, but they share nothing";
  EXPECT_EQ(nearest("", kKeys), "");
  EXPECT_EQ(nearest("lr", {}), "");
  EXPECT_EQ(nearest(std::string(100'000, 'a'), kKeys), "");
}

TEST(Suggest, LongNamesMayHaveMoreMistakes) {
  constexpr std::array<std::string_view, 1> names{"find_unused_parameters"};
  EXPECT_EQ(nearest("find_unsed_paramters", names), "find_unused_parameters");
}

TEST(Suggest, TheFirstOfEquallyNearNamesWins) {
  constexpr std::array<std::string_view, 2> names{"step_a", "step_b"};
  EXPECT_EQ(nearest("step_c", names), "step_a");
}

TEST(Suggest, Sentence) {
  EXPECT_EQ(did_you_mean("optimzer", kKeys), " Did you mean 'optimizer'?");
  EXPECT_EQ(did_you_mean("colour", kKeys), "");
}

}  // namespace
}  // namespace ddprun
