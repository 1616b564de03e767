// Optimizers: SGD, AdamW, Adam and Lion. The first three call LibTorch's fused kernels once for all parameters, as torch.optim
// does with fused=True. With the same version of the kernels, Python computes bit-identical results. LibTorch has no fused
// kernel for Lion, so a step of Lion makes several calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the parameters with the learning rate `lr`. Parameters without a gradient are not changed.
  virtual void step(double lr) = 0;
  // Returns the state to save. The tensors have names of the form "<parameter>.<field>" with PyTorch's field names
  // ("momentum_buffer", "exp_avg", "exp_avg_sq", "step"), and share memory with the optimizer.
  virtual std::vector<NamedTensor> state() const = 0;
  // Copies `saved` into the state. If names or shapes differ from the tensors of state(), throws a UsageError that lists all
  // differences, and changes nothing.
  virtual void load_state(const std::vector<NamedTensor>& saved) = 0;
};

// Creates the optimizer that `config` selects. `parameters` are the model's tensors, in the model's order. `tied` maps second
// names of tied parameters to their names in `parameters`; the pattern of a group may match either name. Throws UsageError if a
// group has no parameter.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::vector<NamedTensor> parameters,
                                          const std::map<std::string, std::string>& tied = {});

// Scales the gradients so that their total 2-norm is at most max_norm. Returns the norm before scaling; 0 if no parameter has a
// gradient. Computes the same as torch.nn.utils.clip_grad_norm_.
double clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm);
// Works like clip_grad_norm(), for gradients on a GPU, but the CPU does not wait for the GPU. Returns the norm before scaling
// as a scalar on the GPU. Returns an undefined tensor if no parameter has a gradient.
at::Tensor clip_grad_norm_on_device(const std::vector<at::Tensor>& parameters, double max_norm);
// Clamps each element of each gradient to [-limit, limit]. Computes the same as torch.nn.utils.clip_grad_value_.
void clip_grad_value(const std::vector<at::Tensor>& parameters, double limit);
// Returns the total 2-norm of the gradients as a float32 scalar on their device; an undefined tensor if no parameter has a
// gradient.
at::Tensor grad_norm(const std::vector<at::Tensor>& parameters);

}  // namespace ddprun::trainer
