// Optimizers with LibTorch's fused kernels, one call for all parameters. The formulas are PyTorch's (torch.optim.SGD, AdamW and
// Adam with fused=True), so results equal Python's bit for bit if the kernels are equal. Lion has no kernel and needs several
// calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
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
  // Makes one update with this learning rate. Parameters without a gradient are not changed.
  virtual void step(double lr) = 0;
  // State to save, named "<parameter>.<field>" with PyTorch's field names ("momentum_buffer", "exp_avg", "exp_avg_sq", "step").
  virtual std::vector<NamedTensor> state() const = 0;
  // Copies the state in. Throws UsageError if names or shapes differ from those of state(), listing the differences.
  virtual void load_state(const std::vector<NamedTensor>& saved) = 0;
};

// `parameters` are in the model's order and stay shared with the model. `tied` has their other names, which the pattern of a
// group may also match. Throws UsageError for a group without a parameter.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::vector<NamedTensor> parameters,
                                          const std::map<std::string, std::string>& tied = {});

// Scales the gradients so that their total 2-norm is at most max_norm; returns the norm before scaling. Equal to
// torch.nn.utils.clip_grad_norm_.
double clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm);
// The same on the gradients' device: the host does not wait. Returns the norm before scaling as a scalar on that device;
// undefined without a gradient.
at::Tensor clip_grad_norm_on_device(const std::vector<at::Tensor>& parameters, double max_norm);
// Clamps each element of each gradient to [-limit, limit]. Equal to torch.nn.utils.clip_grad_value_.
void clip_grad_value(const std::vector<at::Tensor>& parameters, double limit);
// Returns the total 2-norm of the gradients, a float32 scalar on their device. Undefined without a gradient.
at::Tensor grad_norm(const std::vector<at::Tensor>& parameters);

}  // namespace ddprun::trainer
