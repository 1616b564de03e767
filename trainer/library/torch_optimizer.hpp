// An optimizer of LibTorch's as one of ours, so that its state is shared, compared and saved as ddptrain's is, under PyTorch's
// names.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// `parameters`: of the model. `optimizer` outlives the result, whose step() ignores the learning rate that it is given: that is
// in the optimizer's options. Throws UsageError for an optimizer of another kind, or with parameters of another model.
std::unique_ptr<Optimizer> wrap_optimizer(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters);

}  // namespace ddprun::trainer
