// Optimizers by LibTorch's fused kernels, one call for all parameters. Formulas are PyTorch's (torch.optim.SGD, AdamW and
// Adam with fused=True), so results equal Python's bit for bit where the kernels do; Lion has no kernel and takes several
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
  // One update with this learning rate. Parameters without a gradient are left alone.
  virtual void step(double lr) = 0;
  // State to save, named "<parameter>.<field>" with PyTorch's field names ("momentum_buffer", "exp_avg", "exp_avg_sq", "step").
  virtual std::vector<NamedTensor> state() const = 0;
  // Copies the state in. Throws UsageError when names or shapes are not those of state(), and tells all that are not.
  virtual void load_state(const std::vector<NamedTensor>& saved) = 0;
};

// `parameters` in the model's order; they stay shared with the model. `tied`: other names that they have, which a group's
// pattern may match as well. Throws UsageError for a group that has no parameter.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::vector<NamedTensor> parameters,
                                          const std::map<std::string, std::string>& tied = {});

// Scales the gradients so that their total 2-norm is at most max_norm; returns the norm before. As
// torch.nn.utils.clip_grad_norm_.
double clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm);
// The same, enqueued on the gradients' device: the host waits for nothing. The norm before is a scalar there, undefined where
// there is no gradient.
at::Tensor clip_grad_norm_on_device(const std::vector<at::Tensor>& parameters, double max_norm);
// Cuts each element of each gradient to -limit..limit. As torch.nn.utils.clip_grad_value_.
void clip_grad_value(const std::vector<at::Tensor>& parameters, double limit);
// The total 2-norm of the gradients, a float32 scalar on their device. Undefined where there is none.
at::Tensor grad_norm(const std::vector<at::Tensor>& parameters);

}  // namespace ddprun::trainer
