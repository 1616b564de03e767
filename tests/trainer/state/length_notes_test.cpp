// Tests the warnings about a run length that the user has probably not intended.
#include "trainer/state/length_notes.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

using Notes = std::vector<std::string>;

// Returns the notes for a run with 10 steps per epoch.
Notes notes_of(const TrainConfig& config, std::int64_t step = 0, std::int64_t planned_before = 0) {
  return length_notes(config, run_length(config, 10 * config.batch_size), step, planned_before);
}

TEST(LengthNotes, AnOrdinaryRunHasNone) {
  TrainConfig config;
  config.epochs = 3;
  EXPECT_EQ(notes_of(config), Notes{});
  config.max_steps = 30;
  config.schedule = {.type = ScheduleConfig::Type::kCosine, .warmup_steps = 30};
  EXPECT_EQ(notes_of(config), Notes{});
  EXPECT_EQ(notes_of(config, 20, 30), Notes{}) << "resumed as planned";
  EXPECT_EQ(notes_of(config, 20, 40), Notes{}) << "made shorter";
}

TEST(LengthNotes, MaxStepsBeyondTheEpochs) {
  TrainConfig config;
  config.max_steps = 1001;
  EXPECT_EQ(notes_of(config),
            Notes{"max_steps is 1001, but the run ends after 10 steps: epochs is 1, and each epoch has 10 steps. Set epochs "
                  "to 101 to reach max_steps"});
}

TEST(LengthNotes, WarmUpBeyondTheEnd) {
  TrainConfig config;
  config.epochs = 2;
  config.optimizer.lr = 1;
  config.schedule.warmup_steps = 500;
  EXPECT_EQ(notes_of(config),
            Notes{"the warm-up (schedule.warmup_steps 500) is longer than the run of 20 steps: the learning rate "
                  "reaches 0.04 instead of 1. Lower schedule.warmup_steps, or train longer"});
}

TEST(LengthNotes, AnExtendedRunWithADecayedRate) {
  TrainConfig config;
  config.epochs = 4;
  config.optimizer.lr = 1;
  using Type = ScheduleConfig::Type;
  for (const Type type : {Type::kCosine, Type::kLinear, Type::kPolynomial, Type::kOneCycle, Type::kWarmupStableDecay}) {
    config.schedule.type = type;
    const Notes found = notes_of(config, 20, 20);
    ASSERT_EQ(found.size(), 1U) << static_cast<int>(type);
    EXPECT_NE(found[0].find("the run was extended from 20 to 40 steps"), std::string::npos) << found[0];
    EXPECT_NE(found[0].find("the learning rate rises from "), std::string::npos) << found[0];
    EXPECT_NE(found[0].find(" in step 20 to "), std::string::npos) << found[0];
  }
  for (const Type type : {Type::kConstant, Type::kStep, Type::kPlateau}) {
    config.schedule.type = type;
    EXPECT_EQ(notes_of(config, 20, 20), Notes{}) << "its rate does not depend on the end";
  }
}

TEST(LengthNotes, TimedSavesThatWaitForALoggedStep) {
  TrainConfig config;
  config.checkpoint.every_seconds = 60;
  EXPECT_EQ(notes_of(config), Notes{});
  config.checkpoint.local_dir = "/scratch";
  EXPECT_EQ(notes_of(config),
            Notes{"with checkpoint.local_dir, time-based checkpoints are saved only at logged steps, so they may "
                  "be up to 10 steps (log.every_steps) late"});
  config.log.every_steps = 1;
  EXPECT_EQ(notes_of(config), Notes{});
}

}  // namespace
}  // namespace ddprun::trainer
