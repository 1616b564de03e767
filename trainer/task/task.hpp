// A training task: the model, its loss, and the metrics of an evaluation. The loop, the state and the evaluation know only
// tasks and batches. classification.hpp is the first task. A task keeps no state between calls, so a step that is repeated
// after the loss of a peer gives the same result.
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

  // Makes a module for such samples on the device, in training mode, with its initial weights: the same bits each time.
  // PyTorch's default generators have the config's seed during the call and are restored afterwards. Called before the data is
  // read, and again if a state was lost. Throws UsageError.
  virtual std::shared_ptr<torch::nn::Module> make_module(const Description& samples, c10::Device device) const = 0;

  // The mean loss of a batch by the batch's weight: a scalar on the device from which backward can start. Its type is float32.
  // The config's autocast surrounds this call and measure(); under it the type may be bfloat16 or float16. Random numbers come
  // from the device's default generator, seeded by run, step and rank before each step.
  virtual at::Tensor loss(torch::nn::Module& module, const Batch& batch) const = 0;

  // Minimum number of samples for loss(): batch norm over one value per channel needs two. A run with smaller batches is
  // refused before its first step.
  virtual std::int64_t smallest_batch(const Description& /*samples*/) const { return 1; }

  // Whether loss() mixes the samples of a batch with their partners. Other tasks get no partners.
  virtual bool mixes() const { return false; }

  // Names of the metrics that measure() adds, "loss" among them; always the same.
  virtual std::vector<std::string> figures() const = 0;
  // Adds this batch of the test set to the metrics. The module is in evaluation mode, without gradients.
  virtual void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const = 0;

  // Distinguishes tasks that have the same config: a checksum of the files that the task was read from. Empty if the config
  // defines the task completely. It is part of the run's identity and the same on all ranks.
  virtual std::string fingerprint() const { return {}; }
};

}  // namespace ddprun::trainer
