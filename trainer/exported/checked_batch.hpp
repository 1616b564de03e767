// Whether an exported model does here what it did at its exporter: check.safetensors holds a batch, and what PyTorch made of
// it. The task runs it once, before anything is trained.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "trainer/exported/model_folder.hpp"

namespace ddprun::trainer {

// On a copy of the model; the device's default generator is left as found. With the exporter's version of PyTorch, kind of CPU
// and number of threads the bits must be the same: loss, gradients, buffers, figures. Otherwise loss and gradients must agree
// to rounding. Throws UsageError that names what differs.
void check_exported_model(const std::shared_ptr<const ModelFolder>& folder, c10::Device device);

}  // namespace ddprun::trainer
