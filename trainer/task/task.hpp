// What is learnt: the model, its loss, and what an evaluation measures. The loop, the state and the evaluation know tasks and
// batches only; classification.hpp is the first task. A task keeps nothing from one call to the next, so a step that is
// repeated after a lost peer does the same again.
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

  // A module for such samples on the device, in training mode, with its initial weights: the same bits each time. PyTorch's
  // default generators are seeded with the config's seed around the call, and are left as found. Called before the data is
  // read, and again where a state was lost. Throws UsageError.
  virtual std::shared_ptr<torch::nn::Module> make_module(const Description& samples, c10::Device device) const = 0;

  // The mean loss of a batch, by the batch's weight: a scalar on the device, which a backward can start from. Float32; under
  // the config's autocast, which is around this call and measure()'s, it may be bfloat16 or float16. Random numbers come from
  // the device's default generator, which is seeded by run, step and rank before each step.
  virtual at::Tensor loss(torch::nn::Module& module, const Batch& batch) const = 0;

  // The fewest samples that loss() takes at once: batch norm over one value per channel needs two. A run that would have
  // smaller batches is refused before its first step.
  virtual std::int64_t smallest_batch(const Description& /*samples*/) const { return 1; }

  // Whether loss() mixes the samples of a batch that has partners. Only such a task is given one.
  virtual bool mixes() const { return false; }

  // The names of what measure() adds, "loss" among them; always the same.
  virtual std::vector<std::string> figures() const = 0;
  // Adds this batch of the test set to the figures. The module is in evaluation mode, nothing records gradients.
  virtual void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const = 0;

  // Tells this task from others where the config does not: a checksum of the files that it was read from. Empty: the config
  // says it all. It becomes part of the run's identity, and is the same on all ranks.
  virtual std::string fingerprint() const { return {}; }
};

}  // namespace ddprun::trainer
