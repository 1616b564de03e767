// The private implementation of ddprun::State: ddptrain's TrainingState for a model and an optimizer of LibTorch.
#pragma once

#include <ddprun/state.hpp>

#include <memory>

#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun {

struct State::Impl {
  std::shared_ptr<torch::nn::Module> model;
  // training.model is null, because the caller's training loop sets the model's train or eval mode.
  trainer::TrainingState training;
  trainer::StateOrigin origin = trainer::StateOrigin::kUndecided;
};

}  // namespace ddprun
