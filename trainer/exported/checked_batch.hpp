// Checks that an exported model computes the same here as at its exporter. check.safetensors holds a batch and PyTorch's
// results for it. The task runs this batch once, before training.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "trainer/exported/model_folder.hpp"

namespace ddprun::trainer {

// Runs on a copy of the model; the state of the device's default generator is restored. With the exporter's version of PyTorch,
// kind of CPU and number of threads, loss, gradients, buffers and metrics must have the same bits. Otherwise loss and gradients
// must agree up to rounding. Throws UsageError that names the difference.
void check_exported_model(const std::shared_ptr<const ModelFolder>& folder, c10::Device device);

}  // namespace ddprun::trainer
