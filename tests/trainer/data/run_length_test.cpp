// Tests the number of epochs of a run that must have a minimum number of steps.
#include "trainer/data/run_length.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

TEST(RunLength, SmallDataHasMoreEpochs) {
  TrainConfig config;
  config.batch_size = 10;
  config.epochs = 3;
  EXPECT_EQ(run_length(config, 95).total_steps, 30);
  config.min_steps = 50;
  EXPECT_EQ(run_length(config, 95).epochs, 5);
  EXPECT_EQ(run_length(config, 95).total_steps, 50);
  config.min_steps = 41;
  EXPECT_EQ(run_length(config, 95).epochs, 5) << "whole epochs";
  config.min_steps = 30;
  EXPECT_EQ(run_length(config, 95).epochs, 3);
  config.min_steps = 1000;
  config.max_steps = 7;
  EXPECT_EQ(run_length(config, 95).total_steps, 7);
}

}  // namespace
}  // namespace ddprun::trainer
