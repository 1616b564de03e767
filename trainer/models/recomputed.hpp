// Activation checkpointing: a block of a model keeps what it was given instead of all that it computed, and computes it again
// in the backward pass. gpt.cpp and llama.cpp call it. What torch.utils.checkpoint is in Python (Chen et al. 2016).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>

namespace ddprun::trainer {

// block(x), and the same gradients to the last bit. `parameters` is the module whose parameters `block` uses; `block` may be
// called again until the backward pass is over, and has the same effect each time. It may draw from the default generator of
// x's device: `draws` says so, and then the second call draws the same, and what is drawn afterwards is as without it. The
// second call has the autocast of the first one. Gradients come to the parameters as usual, so DDP's hooks see them once.
at::Tensor recomputed(const torch::nn::Module& parameters, const at::Tensor& x,
                      const std::function<at::Tensor(const at::Tensor&)>& block, bool draws);

}  // namespace ddprun::trainer
