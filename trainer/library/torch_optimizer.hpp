// Wraps an optimizer of LibTorch as one of ours. Its state is then shared, compared and saved as in ddptrain, under PyTorch's
// names.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// `parameters`: all parameters of the model. `optimizer` must outlive the result. step() of the result ignores its learning
// rate, since that is in the optimizer's options. Throws UsageError for another kind of optimizer, or for parameters of another
// model.
std::unique_ptr<Optimizer> wrap_optimizer(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters);

}  // namespace ddprun::trainer
