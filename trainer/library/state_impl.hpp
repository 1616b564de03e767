// Behind ddprun::State: ddptrain's own TrainingState around a model and an optimizer of LibTorch's.
#pragma once

#include <ddprun/state.hpp>

#include <memory>

#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun {

struct State::Impl {
  std::shared_ptr<torch::nn::Module> model;
  // Without the model: whether that trains or evaluates is its owner's business.
  trainer::TrainingState training;
  trainer::StateOrigin origin = trainer::StateOrigin::kUntouched;
};

}  // namespace ddprun
