// Wraps an optimizer of LibTorch as an Optimizer of ddptrain. So ddptrain's code can send the optimizer's state to other
// ranks, compare it and save it. The parts of the state have PyTorch's names.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// `parameters` must be all parameters of the model. `optimizer` must outlive the result. step() of the result ignores its
// argument, since the learning rate is in the optimizer's options. Throws UsageError if the kind of optimizer is not supported,
// or if the optimizer has parameters of another model.
std::unique_ptr<Optimizer> wrap_optimizer(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters);

}  // namespace ddprun::trainer
