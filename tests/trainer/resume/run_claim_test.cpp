// Tests that ranks compare their configs before they train together.
#include "trainer/resume/run_claim.hpp"

#include <gtest/gtest.h>

#include <string>

#include "common/base/error.hpp"
#include "tests/trainer/parallel/ranks.hpp"

namespace ddprun::trainer {
namespace {

TEST(AgreeOnConfig, OnlyJobWideKeysMustBeEqual) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  const Peers peers(rank->group, rank->environment.rank, 3, c10::kCPU);
  const auto refusal = [&](const TrainConfig& config) -> std::string {
    try {
      agree_on_config(config, peers);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  TrainConfig config;
  config.name = "job";
  config.data.dir = "/here";
  EXPECT_EQ(refusal(config), "");

  TrainConfig with_own_folder = config;
  if (peers.rank() == 2) with_own_folder.data.dir = "/elsewhere";
  EXPECT_EQ(refusal(with_own_folder), "") << "each node has its own";

  TrainConfig other = config;
  if (peers.rank() == 2) other.batch_size = config.batch_size + 1;
  const std::string message = refusal(other);
  if (peers.rank() < 2) {
    EXPECT_EQ(message, "");
  } else {
    EXPECT_NE(message.find("the config of this rank differs from the config of rank 0:\n  /batch_size: "), std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace ddprun::trainer
