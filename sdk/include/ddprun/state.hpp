// The state of a custom training loop that must survive a failure: a model, its optimizer and the number of finished steps.
// ddprun::Job sends it to a new worker, ddprun::Checkpointing saves it, and ddprun::DataParallel trains it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace ddprun {

// Only the training thread may use this class. The object shares ownership of the model. The optimizer must outlive the object.
// From the first step on, only the values of tensors may change. Parameters must not be added, removed or reshaped.
class State {
 public:
  // `model` must already be on its device. `optimizer` must contain parameters of `model`, and be torch::optim's SGD, Adam,
  // AdamW, RMSprop or Adagrad. A frozen parameter (requires_grad false) is saved but not trained. A parameter with two names
  // in the model is used only once. Throws ddprun::UsageError (a std::runtime_error) for a different kind of optimizer, or if
  // `optimizer` contains parameters that the model lacks.
  State(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Returns the number of finished steps of the whole training run. Derive the data position, the learning rate and random
  // numbers from this number. A resumed run then computes the same results as an uninterrupted run.
  std::int64_t step() const;

  // Runs the optimizer's step and counts the training step as finished. Call this once per step, after the last collective.
  // Between that collective and this call, an error may occur only if it occurs on every rank. An error on only some ranks
  // would make the states of the ranks differ.
  void update();

  // These named numbers are part of the state. Examples are the best accuracy so far and a loss scale. They must be the same on
  // all ranks.
  std::map<std::string, double>& values();

  struct Impl;  // defined in the library
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
