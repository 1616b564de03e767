// The state that must survive a failure in a training loop of your own: a model, its optimizer and the number of finished
// steps. ddprun::Job sends it to a newly started worker, ddprun::Checkpointing saves it, ddprun::DataParallel trains it.
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

// For the training thread only. The caller shares the model and owns the optimizer. From the first step on, only the values of
// tensors may change. Do not add, remove or reshape parameters.
class State {
 public:
  // `model` must be on its device already. `optimizer` must hold parameters of that model and be torch::optim's SGD, Adam,
  // AdamW, RMSprop or Adagrad. A frozen parameter (requires_grad false) is saved but not trained. A parameter with two names in
  // the model counts once. `optimizer` must outlive this object. Throws ddprun::UsageError (std::runtime_error) for another
  // optimizer, or if it holds parameters that the model lacks.
  State(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Number of finished steps of the whole training. Derive the data position, learning rate and random numbers from it. Then an
  // interrupted run computes the same as an uninterrupted one.
  std::int64_t step() const;

  // Runs the optimizer's step and counts the step as finished. Call it once per step, after the last collective. Between that
  // collective and this call, allow only errors that occur on every rank: else the ranks' states differ.
  void update();

  // Named numbers that survive too, such as the best accuracy so far or a loss scale. They must be the same on all ranks.
  std::map<std::string, double>& values();

  struct Impl;  // defined in the library
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
