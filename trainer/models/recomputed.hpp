// Activation checkpointing (Chen et al. 2016; torch.utils.checkpoint in Python). A block of a model stores only its input. In
// the backward pass, the forward pass of the block runs again to compute the intermediate results. This saves memory, at the
// cost of about one more forward pass. The transformer models use this.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>

namespace ddprun::trainer {

// Returns block(x), with bit-identical gradients. `parameters` is the module whose parameters `block` uses. `block` is called
// again in the backward pass, and must compute the same result. `draws` must be true if `block` uses the default generator of
// x's device: the second call then draws the same numbers, and the generator's state is restored afterwards. The second call
// has the autocast settings of the first call. Each parameter gets its gradient once, so DDP's hooks run once per parameter as
// usual.
at::Tensor recomputed(const torch::nn::Module& parameters, const at::Tensor& x,
                      const std::function<at::Tensor(const at::Tensor&)>& block, bool draws);

}  // namespace ddprun::trainer
