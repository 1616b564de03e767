// Checks that an exported model computes the same results in this process as in Python, where it was exported.
// check.safetensors contains a batch and PyTorch's results for it. The task runs this batch once, before training.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "trainer/exported/model_folder.hpp"

namespace ddprun::trainer {

// Throws UsageError, which names the difference, if the results differ. If the PyTorch version, the CPU model and the number
// of threads are the same as in the exporter, the loss, gradients, buffers and metrics must be bit-identical. Otherwise the
// losses and the gradients must agree up to rounding. The check runs on a copy of the model, and restores the state of the
// device's default random number generator.
void check_exported_model(const std::shared_ptr<const ModelFolder>& folder, c10::Device device);

}  // namespace ddprun::trainer
