// Messages of a spare interpreter, including invalid ones.
#include "launcher/spares/spare_word.hpp"

#include <gtest/gtest.h>

namespace ddprun::spares {
namespace {

TEST(SpareWord, ReadySaysTimeAndMemory) {
  const auto word = parse_word("ready\n4250\n351000000");
  ASSERT_TRUE(word && std::holds_alternative<HasLoaded>(*word));
  EXPECT_EQ(std::get<HasLoaded>(*word).seconds, 4.25);
  EXPECT_EQ(std::get<HasLoaded>(*word).memory_bytes, 351'000'000);
}

TEST(SpareWord, UnfitAndRunsHaveAReasonThatMayBeEmpty) {
  const auto unfit = parse_word("unfit\ncannot preload torch");
  ASSERT_TRUE(unfit && std::holds_alternative<Unfit>(*unfit));
  EXPECT_EQ(std::get<Unfit>(*unfit).why, "cannot preload torch");
  const auto runs = parse_word("runs\n");
  ASSERT_TRUE(runs && std::holds_alternative<Runs>(*runs));
  EXPECT_EQ(std::get<Runs>(*runs).plainly_for, "");
}

TEST(SpareWord, HeardComesBeforeRuns) {
  const auto word = parse_word("heard");
  EXPECT_TRUE(word && std::holds_alternative<HasHeard>(*word));
}

TEST(SpareWord, AnythingElseIsNone) {
  for (const char* const packet : {"", "\n", "read", "ready", "ready\n1", "ready\n-1\n2", "ready\nx\n2", "ready\n1\n2x"})
    EXPECT_FALSE(parse_word(packet)) << packet;
}

}  // namespace
}  // namespace ddprun::spares
