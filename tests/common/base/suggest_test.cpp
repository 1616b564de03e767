// Tests which name is suggested after a typing error ("did you mean"), and when no name is suggested.
#include "common/base/suggest.hpp"

#include <gtest/gtest.h>

#include <array>

namespace ddprun {
namespace {

constexpr std::array<std::string_view, 6> kKeys{"optimizer", "batch_size", "epochs", "lr", "model", "max_steps"};

TEST(Suggest, FindsTheNearestName) {
  EXPECT_EQ(closest_name("optimzer", kKeys), "optimizer");
  EXPECT_EQ(closest_name("epoch", kKeys), "epochs");
  EXPECT_EQ(closest_name("mdoel", kKeys), "model");
}

TEST(Suggest, DashesAndCaseAreIgnored) {
  EXPECT_EQ(closest_name("batch-size", kKeys), "batch_size");
  EXPECT_EQ(closest_name("Batch-Sizes", kKeys), "batch_size");
}

TEST(Suggest, TranspositionCostsOne) {
  EXPECT_EQ(closest_name("rl", kKeys), "lr");
}

TEST(Suggest, SuggestsNothingIfNothingIsClose) {
  EXPECT_EQ(closest_name("colour", kKeys), "");
  EXPECT_EQ(closest_name("x", kKeys), "") << "two edits turn x into lr, but they share nothing";
  EXPECT_EQ(closest_name("", kKeys), "");
  EXPECT_EQ(closest_name("lr", {}), "");
  EXPECT_EQ(closest_name(std::string(100'000, 'a'), kKeys), "");
}

TEST(Suggest, LongNamesTolerateMoreMistakes) {
  constexpr std::array<std::string_view, 1> names{"find_unused_parameters"};
  EXPECT_EQ(closest_name("find_unsed_paramters", names), "find_unused_parameters");
}

TEST(Suggest, TheFirstOfEquallyCloseNamesWins) {
  constexpr std::array<std::string_view, 2> names{"step_a", "step_b"};
  EXPECT_EQ(closest_name("step_c", names), "step_a");
}

TEST(Suggest, Sentence) {
  EXPECT_EQ(did_you_mean("optimzer", kKeys), " Did you mean 'optimizer'?");
  EXPECT_EQ(did_you_mean("colour", kKeys), "");
}

}  // namespace
}  // namespace ddprun
