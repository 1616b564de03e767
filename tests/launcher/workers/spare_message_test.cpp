// Tests the parser for messages of a spare interpreter (a preloaded Python process), including invalid packets.
#include "launcher/workers/spare_message.hpp"

#include <gtest/gtest.h>

namespace ddprun::spares {
namespace {

TEST(SpareMessage, ReadyHasTimeAndMemory) {
  const auto message = parse_message("ready\n4250\n351000000");
  ASSERT_TRUE(message && std::holds_alternative<Loaded>(*message));
  EXPECT_EQ(std::get<Loaded>(*message).seconds, 4.25);
  EXPECT_EQ(std::get<Loaded>(*message).memory_bytes, 351'000'000);
}

TEST(SpareMessage, ReasonOfUnfitAndRunsMayBeEmpty) {
  const auto unfit = parse_message("unfit\ncannot preload torch");
  ASSERT_TRUE(unfit && std::holds_alternative<Unfit>(*unfit));
  EXPECT_EQ(std::get<Unfit>(*unfit).why, "cannot preload torch");
  const auto runs = parse_message("runs\n");
  ASSERT_TRUE(runs && std::holds_alternative<Runs>(*runs));
  EXPECT_EQ(std::get<Runs>(*runs).cold_start_reason, "");
}

TEST(SpareMessage, ScriptReceivedHasNoFields) {
  const auto message = parse_message("heard");
  EXPECT_TRUE(message && std::holds_alternative<ScriptReceived>(*message));
}

TEST(SpareMessage, OtherPacketsAreRejected) {
  for (const char* const packet : {"", "\n", "read", "ready", "ready\n1", "ready\n-1\n2", "ready\nx\n2", "ready\n1\n2x"})
    EXPECT_FALSE(parse_message(packet)) << packet;
}

}  // namespace
}  // namespace ddprun::spares
