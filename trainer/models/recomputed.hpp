// Activation checkpointing: a block of a model stores only its input instead of all intermediate results, and computes these
// again in the backward pass. gpt.cpp and llama.cpp use it. It corresponds to torch.utils.checkpoint in Python (Chen et al.
// 2016).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>

namespace ddprun::trainer {

// Returns block(x), with gradients that are equal to the last bit. `parameters` is the module whose parameters `block` uses.
// `block` may be called again until the backward pass is over, and must have the same effect each time. `draws` must be true if
// it uses the default generator of x's device. Then the second call draws the same numbers and does not affect later draws. The
// second call has the autocast settings of the first one. Gradients reach the parameters as usual, so DDP's hooks run once.
at::Tensor recomputed(const torch::nn::Module& parameters, const at::Tensor& x,
                      const std::function<at::Tensor(const at::Tensor&)>& block, bool draws);

}  // namespace ddprun::trainer
