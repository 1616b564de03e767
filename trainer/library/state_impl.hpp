// Implementation behind ddprun::State: ddptrain's TrainingState around a model and an optimizer of LibTorch.
#pragma once

#include <ddprun/state.hpp>

#include <memory>

#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun {

struct State::Impl {
  std::shared_ptr<torch::nn::Module> model;
  // Has no model: the caller sets the model's train or eval mode.
  trainer::TrainingState training;
  trainer::StateOrigin origin = trainer::StateOrigin::kUntouched;
};

}  // namespace ddprun
