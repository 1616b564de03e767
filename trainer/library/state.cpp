#include <ddprun/state.hpp>

#include <utility>

#include "trainer/library/state_impl.hpp"
#include "trainer/library/torch_optimizer.hpp"

namespace ddprun {

State::State(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer) : impl_(std::make_unique<Impl>()) {
  impl_->training = trainer::state_of(std::move(model));
  impl_->model = std::exchange(impl_->training.model, nullptr);
  impl_->training.optimizer = trainer::wrap_optimizer(optimizer, impl_->training.parameters);
  // Job::run() sets `can_undo` to true if a new group can be formed after the loss of a worker
  impl_->training.can_undo = false;
}

State::~State() = default;

std::int64_t State::step() const {
  return impl_->training.step;
}

// The argument lr is ignored, because the learning rate is in the optimizer's own options.
void State::update() {
  trainer::begin_update(impl_->training);
  trainer::update_weights(impl_->training, /*lr=*/0);
  trainer::end_step(impl_->training);
}

std::map<std::string, double>& State::values() {
  return impl_->training.values;
}

}  // namespace ddprun
