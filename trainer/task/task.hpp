// The interface of a training task. A task defines the model, the loss and the metrics of an evaluation. The code for training,
// training state and evaluation uses a task only through this interface. A task has no state that changes between calls. So a
// step that is repeated after the loss of a worker has the same result.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/source.hpp"
#include "trainer/task/figures.hpp"

namespace ddprun::trainer {

class Task {
 public:
  Task() = default;
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Returns a new module for samples like `samples`, on the device, in training mode. Each call must return bit-identical
  // weights. The caller seeds PyTorch's default generators with the config's seed before the call, and restores them
  // afterwards. The call comes before the data is read, and again if the training state was lost. May throw UsageError.
  virtual std::shared_ptr<torch::nn::Module> make_module(const Description& samples, c10::Device device) const = 0;

  // Returns the training loss of a batch, averaged by the batch's weight: a float32 scalar on the device. The caller runs
  // backward() on the result. With mixed precision, this call and measure() run under autocast, and the scalar may then be
  // bfloat16 or float16. Random numbers must come from the device's default generator. Before each step, the caller seeds it by
  // run, step and rank.
  virtual at::Tensor loss(torch::nn::Module& module, const Batch& batch) const = 0;

  // Returns the factor that converts the result of loss() into the unit of the metric "loss", for logs of training steps. A
  // task that scales its targets overrides this function.
  virtual double loss_unit(torch::nn::Module& /*module*/) const { return 1; }

  // Returns the minimum number of samples in a batch for loss(). For example, batch norm over one value per channel needs two
  // samples. If a run would have a smaller batch, it ends with an error before its first step.
  virtual std::int64_t smallest_batch(const Description& /*samples*/) const { return 1; }

  // Returns true if loss() mixes each sample of a batch with another sample, its partner. Batches of other tasks contain no
  // partners.
  virtual bool mixes() const { return false; }

  // Returns the names of the metrics that measure() adds. They must include "loss" and be the same in each call.
  virtual std::vector<std::string> figures() const = 0;
  // Adds the metrics of a batch of an evaluation to `figures`. The module is in evaluation mode, and autograd is disabled.
  virtual void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const = 0;

  // Returns a checksum of the files that define the task; empty if the config alone defines the task. It distinguishes tasks
  // whose configs are equal. The checksum is part of the run's identity, so it must be equal on all ranks.
  virtual std::string fingerprint() const { return {}; }
};

}  // namespace ddprun::trainer
