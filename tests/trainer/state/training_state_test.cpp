// A step that is cut off in an exchange leaves the state before it; one whose update was cut off leaves nothing to go on from.
#include "trainer/state/training_state.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

TrainingState state_with_a_buffer() {
  TrainingState state;
  state.step = 7;
  state.buffers = {{"running_mean", at::zeros({3})}};
  return state;
}

TEST(TrainingState, AStepCutOffInAnExchangeIsUndone) {
  TrainingState state = state_with_a_buffer();
  for (int again = 0; again < 2; ++again) {
    begin_step(state);
    state.buffers[0].tensor.add_(1.0);  // the forward pass
    EXPECT_TRUE(undo_step(state));
    EXPECT_TRUE(state.buffers[0].tensor.equal(at::zeros({3})));
  }
  EXPECT_EQ(state.step, 7);
}

TEST(TrainingState, AFinishedStepStays) {
  TrainingState state = state_with_a_buffer();
  begin_step(state);
  state.buffers[0].tensor.add_(1.0);
  begin_update(state);
  end_step(state);
  EXPECT_TRUE(undo_step(state));
  EXPECT_TRUE(state.buffers[0].tensor.equal(at::ones({3})));
  EXPECT_EQ(state.step, 8);
}

TEST(TrainingState, AnUpdateCutOffLeavesNoStateToGoOnFrom) {
  TrainingState state = state_with_a_buffer();
  begin_step(state);
  begin_update(state);
  EXPECT_FALSE(undo_step(state));
}

}  // namespace
}  // namespace ddprun::trainer
