// What must survive in a training loop of your own: a model, its optimizer, the number of finished steps. ddprun::Job hands it
// to a worker that has just been started, ddprun::Checkpointing saves it, ddprun::DataParallel trains it.
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

// The training thread's alone. Model and optimizer are shared with you and stay yours; from the first step on tensors may
// change their values and nothing else: no parameter comes or goes, or gets another shape.
class State {
 public:
  // `model` on its device already, `optimizer` of parameters of that model: torch::optim's SGD, Adam, AdamW, RMSprop or
  // Adagrad. A parameter that is frozen (requires_grad false) is saved and not trained; one that the model has under two names
  // counts once. `optimizer` must outlive this. Throws ddprun::UsageError (std::runtime_error) for another optimizer, or one
  // with parameters that the model lacks.
  State(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Finished steps of the whole training. Position in the data, learning rate and random numbers should follow from it, so that
  // a run that was interrupted computes the same as one that was not.
  std::int64_t step() const;

  // The optimizer's step, and the step counts as finished. Once a step, when all gradients are summed: between this and the
  // last exchange with other ranks nothing may fail that can't fail on all of them.
  void update();

  // Numbers that survive as well, by name: the best accuracy so far, a loss scale. The same on all ranks.
  std::map<std::string, double>& values();

  struct Impl;  // of the library
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
