// Messages about a run length that was probably not intended.
#include "trainer/state/length_notes.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

using Notes = std::vector<std::string>;

// 10 steps per epoch.
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
            Notes{"max_steps is 1001, but the run ends after 10 steps: epochs is 1, of 10 steps each. Set epochs "
                  "to 101 to reach max_steps"});
}

TEST(LengthNotes, AWarmUpBeyondTheEnd) {
  TrainConfig config;
  config.epochs = 2;
  config.optimizer.lr = 1;
  config.schedule.warmup_steps = 500;
  EXPECT_EQ(notes_of(config),
            Notes{"the warm-up (schedule.warmup_steps 500) is longer than the run of 20 steps: the learning rate "
                  "ends at 0.04 of 1. Lower warmup_steps, or train longer"});
}

TEST(LengthNotes, ALongerRunWhoseRateHadDecayed) {
  TrainConfig config;
  config.epochs = 4;
  config.optimizer.lr = 1;
  using Type = ScheduleConfig::Type;
  for (const Type type : {Type::kCosine, Type::kLinear, Type::kPolynomial, Type::kOneCycle, Type::kWarmupStableDecay}) {
    config.schedule.type = type;
    const Notes found = notes_of(config, 20, 20);
    ASSERT_EQ(found.size(), 1U) << static_cast<int>(type);
    EXPECT_NE(found[0].find("the run is longer than planned (40 steps, 20 before)"), std::string::npos) << found[0];
    EXPECT_NE(found[0].find("the learning rate rises from "), std::string::npos) << found[0];
    EXPECT_NE(found[0].find(" in step 20 to "), std::string::npos) << found[0];
  }
  for (const Type type : {Type::kConstant, Type::kStep, Type::kPlateau}) {
    config.schedule.type = type;
    EXPECT_EQ(notes_of(config, 20, 20), Notes{}) << "its rate does not depend on the end";
  }
}

TEST(LengthNotes, SavesByTimeThatWaitForALoggedStep) {
  TrainConfig config;
  config.checkpoint.every_seconds = 60;
  EXPECT_EQ(notes_of(config), Notes{});
  config.checkpoint.local_dir = "/scratch";
  EXPECT_EQ(notes_of(config),
            Notes{"with checkpoint.local_dir a save by time begins at a logged step, up to log.every_steps (10) "
                  "steps after it is due"});
  config.log.every_steps = 1;
  EXPECT_EQ(notes_of(config), Notes{});
}

}  // namespace
}  // namespace ddprun::trainer
