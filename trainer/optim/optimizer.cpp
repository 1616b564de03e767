// SGD, AdamW and Adam with the fused kernels, Lion with the foreach ones. The training loop calls step() once per batch; the
// checkpoint calls state() and load_state(). The lists of tensors for the kernels are kept between steps. So a step costs one
// kernel call and the look-up of the gradients.
#include "trainer/optim/optimizer.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/optim/name_patterns.hpp"
#include "trainer/optim/tensor_fit.hpp"

namespace ddprun::trainer {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Parameters {
  std::vector<std::string> names;
  Tensors tensors;

  explicit Parameters(std::vector<NamedTensor> named) {
    for (NamedTensor& parameter : named) {
      if (parameter.tensor.requires_grad()) {
        names.push_back(std::move(parameter.name));
        tensors.push_back(std::move(parameter.tensor));
      }
    }
  }
  std::size_t size() const { return tensors.size(); }
};

Tensors zeros_like_each(const Tensors& tensors) {
  Tensors zeros;
  zeros.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    zeros.push_back(at::zeros_like(tensor, at::TensorOptions().requires_grad(false)));
  }
  return zeros;
}

// Copies `saved` into the tensors of `state`, which share memory with the optimizer's. A refused state changes nothing.
void copy_state(const std::vector<NamedTensor>& state, const std::vector<NamedTensor>& saved) {
  if (const std::string problem = misfit(state, saved); !problem.empty()) {
    throw UsageError("the saved state of the optimizer is of another model or optimizer: " + problem +
                     ". Check model, optimizer and their groups in the config, or use --fresh to start over");
  }
  const c10::NoGradGuard no_grad;
  std::unordered_map<std::string_view, const at::Tensor*> by_name;
  for (const NamedTensor& entry : saved) by_name.emplace(entry.name, &entry.tensor);
  for (const NamedTensor& entry : state) entry.tensor.copy_(*by_name.at(entry.name));
}

// Parameters with one learning rate and one weight decay.
class OneGroup : public Optimizer {
 public:
  void load_state(const std::vector<NamedTensor>& saved) final { copy_state(state(), saved); }
};

// torch.optim.SGD(fused=True), dampening 0. PyTorch uses the gradient itself as the momentum buffer of a first step. Here the
// buffer begins as zeros: momentum * 0 + gradient is the same, except for the sign of a zero. So a step depends on the tensors
// alone. A rank that received them computes the same bits as one that has made all steps.
class Sgd : public OneGroup {
 public:
  Sgd(const OptimizerConfig& config, std::vector<NamedTensor> parameters)
      : config_(config), parameters_(std::move(parameters)) {
    if (config_.momentum != 0) {
      momentum_buffers_ = zeros_like_each(parameters_.tensors);
    }
    gradients_.reserve(parameters_.size());
  }

  void step(double lr) override {
    gradients_.clear();
    for (const at::Tensor& parameter : parameters_.tensors) {
      const at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined()) {
        gradients_.push_back(gradient);
      }
    }
    if (gradients_.size() == parameters_.size()) {
      update(parameters_.tensors, gradients_, momentum_buffers_, lr);
    } else if (!gradients_.empty()) {
      update_those_with_gradients(lr);
    }
    gradients_.clear();  // releases the gradients, so that zero_grad can free their memory
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> state;
    for (std::size_t i = 0; i < momentum_buffers_.size(); ++i) {
      state.push_back({parameters_.names[i] + ".momentum_buffer", momentum_buffers_[i]});
    }
    return state;
  }

 private:
  void update(const Tensors& parameters, const Tensors& gradients, const Tensors& buffers, double lr) {
    const c10::NoGradGuard no_grad;
    at::_fused_sgd_(parameters, gradients, buffers, config_.weight_decay, config_.momentum, lr, /*dampening=*/0.0,
                    config_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
  }

  void update_those_with_gradients(double lr) {
    Tensors parameters;
    Tensors buffers;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_.tensors[i].mutable_grad().defined()) continue;
      parameters.push_back(parameters_.tensors[i]);
      if (config_.momentum != 0) {
        buffers.push_back(momentum_buffers_[i]);
      }
    }
    update(parameters, gradients_, buffers, lr);
  }

  OptimizerConfig config_;
  Parameters parameters_;
  Tensors momentum_buffers_;  // empty without momentum
  Tensors gradients_;
};

// torch.optim.AdamW or Adam (fused=True), without amsgrad. They differ in how the weight decay is applied.
class Adam : public OneGroup {
 public:
  Adam(const OptimizerConfig& config, std::vector<NamedTensor> parameters)
      : config_(config),
        parameters_(std::move(parameters)),
        exp_avgs_(zeros_like_each(parameters_.tensors)),
        exp_avg_sqs_(zeros_like_each(parameters_.tensors)) {
    gradients_.reserve(parameters_.size());
    for (const at::Tensor& parameter : parameters_.tensors) {
      // One scalar each, as PyTorch has it, on the parameter's device: the CUDA kernel reads it there.
      steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false)));
    }
  }

  void step(double lr) override {
    gradients_.clear();
    for (const at::Tensor& parameter : parameters_.tensors) {
      const at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined()) {
        gradients_.push_back(gradient);
      }
    }
    if (gradients_.size() == parameters_.size()) {
      update(parameters_.tensors, gradients_, exp_avgs_, exp_avg_sqs_, steps_, lr);
    } else if (!gradients_.empty()) {
      update_those_with_gradients(lr);
    }
    gradients_.clear();  // releases the gradients, so that zero_grad can free their memory
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> state;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      state.push_back({parameters_.names[i] + ".step", steps_[i]});
      state.push_back({parameters_.names[i] + ".exp_avg", exp_avgs_[i]});
      state.push_back({parameters_.names[i] + ".exp_avg_sq", exp_avg_sqs_[i]});
    }
    return state;
  }

 private:
  void update(const Tensors& parameters, const Tensors& gradients, const Tensors& exp_avgs, const Tensors& exp_avg_sqs,
              const Tensors& steps, double lr) {
    const c10::NoGradGuard no_grad;
    if (parameters.empty()) {
      return;
    }
    if (steps.front().is_cpu()) {
      // An at:: call for each scalar would cost more than the update of a small model.
      for (const at::Tensor& step : steps) {
        *step.mutable_data_ptr<float>() += 1.0F;
      }
    } else {
      at::_foreach_add_(steps, 1);
    }
    const auto update_by = [&](auto kernel) {
      kernel(parameters, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps, lr, config_.betas[0],
             config_.betas[1], config_.weight_decay, config_.eps, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{},
             /*found_inf=*/{});
    };
    if (config_.type == OptimizerConfig::Type::kAdam) {
      update_by(at::_ops::_fused_adam_::call);
    } else {
      update_by(at::_ops::_fused_adamw_::call);
    }
  }

  void update_those_with_gradients(double lr) {
    Tensors parameters;
    Tensors exp_avgs;
    Tensors exp_avg_sqs;
    Tensors steps;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_.tensors[i].mutable_grad().defined()) {
        parameters.push_back(parameters_.tensors[i]);
        exp_avgs.push_back(exp_avgs_[i]);
        exp_avg_sqs.push_back(exp_avg_sqs_[i]);
        steps.push_back(steps_[i]);
      }
    }
    update(parameters, gradients_, exp_avgs, exp_avg_sqs, steps, lr);
  }

  OptimizerConfig config_;
  Parameters parameters_;
  Tensors exp_avgs_;
  Tensors exp_avg_sqs_;
  Tensors steps_;
  Tensors gradients_;
};

// Lion (Chen et al. 2023, algorithm 2), with the operations and the order of its published PyTorch code. The update is the sign
// of a mean of moment and gradient, which weights the gradient more than the stored moment does.
class Lion : public OneGroup {
 public:
  Lion(const OptimizerConfig& config, std::vector<NamedTensor> parameters)
      : config_(config), parameters_(std::move(parameters)), exp_avgs_(zeros_like_each(parameters_.tensors)) {}

  void step(double lr) override {
    const c10::NoGradGuard no_grad;
    Tensors parameters, gradients, means;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& gradient = parameters_.tensors[i].mutable_grad();
      if (!gradient.defined()) continue;
      parameters.push_back(parameters_.tensors[i]);
      gradients.push_back(gradient);
      means.push_back(exp_avgs_[i]);
    }
    if (parameters.empty()) return;
    at::_foreach_mul_(parameters, 1 - lr * config_.weight_decay);
    const Tensors updates = at::_foreach_mul(means, config_.betas[0]);
    at::_foreach_add_(updates, at::_foreach_mul(gradients, 1 - config_.betas[0]));
    at::_foreach_sign_(updates);
    at::_foreach_add_(parameters, updates, -lr);
    at::_foreach_mul_(means, config_.betas[1]);
    at::_foreach_add_(means, gradients, 1 - config_.betas[1]);
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> state;
    for (std::size_t i = 0; i < exp_avgs_.size(); ++i) state.push_back({parameters_.names[i] + ".exp_avg", exp_avgs_[i]});
    return state;
  }

 private:
  OptimizerConfig config_;
  Parameters parameters_;
  Tensors exp_avgs_;
};

std::unique_ptr<OneGroup> one_group(const OptimizerConfig& config, std::vector<NamedTensor> parameters) {
  switch (config.type) {
    case OptimizerConfig::Type::kSgd:
      return std::make_unique<Sgd>(config, std::move(parameters));
    case OptimizerConfig::Type::kAdamw:
    case OptimizerConfig::Type::kAdam:
      return std::make_unique<Adam>(config, std::move(parameters));
    case OptimizerConfig::Type::kLion:
      return std::make_unique<Lion>(config, std::move(parameters));
  }
  throw InternalError("make_optimizer: unknown optimizer type");
}

// Updates the groups one after the other, as Python does with param_groups.
class Grouped : public Optimizer {
 public:
  void add(std::unique_ptr<OneGroup> group, double lr_scale) { groups_.push_back({std::move(group), lr_scale}); }

  void step(double lr) override {
    for (const Group& group : groups_) group.optimizer->step(lr * group.lr_scale);
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> all;
    for (const Group& group : groups_) {
      for (NamedTensor& entry : group.optimizer->state()) all.push_back(std::move(entry));
    }
    return all;
  }

  void load_state(const std::vector<NamedTensor>& saved) override { copy_state(state(), saved); }

 private:
  struct Group {
    std::unique_ptr<OneGroup> optimizer;
    double lr_scale;
  };
  std::vector<Group> groups_;
};

std::unique_ptr<Optimizer> grouped(const OptimizerConfig& config, const std::vector<NamedTensor>& parameters,
                                   const std::map<std::string, std::string>& tied) {
  std::vector<std::string> names;
  std::vector<std::string> patterns;
  for (const NamedTensor& parameter : parameters) names.push_back(parameter.name);
  for (const ParameterGroup& group : config.groups) patterns.push_back(group.parameters);
  const auto group_of = first_matches("optimizer.groups", patterns, names, tied, "trained parameter");

  auto all = std::make_unique<Grouped>();
  const auto add = [&](std::optional<std::size_t> number, const OptimizerConfig& of_group, double lr_scale) {
    std::vector<NamedTensor> members;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (group_of[i] == number) members.push_back(parameters[i]);
    }
    if (members.empty() && number) {
      throw UsageError("optimizer.groups: all parameters that match '" + patterns[*number] + "' are in earlier groups");
    }
    if (!members.empty()) all->add(one_group(of_group, std::move(members)), lr_scale);
  };
  for (std::size_t i = 0; i < config.groups.size(); ++i) {
    OptimizerConfig of_group = config;
    of_group.weight_decay = config.groups[i].weight_decay.value_or(config.weight_decay);
    add(i, of_group, config.groups[i].lr_scale);
  }
  add(std::nullopt, config, 1);
  return all;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::vector<NamedTensor> parameters,
                                          const std::map<std::string, std::string>& tied) {
  if (config.groups.empty()) return one_group(config, std::move(parameters));
  std::erase_if(parameters, [](const NamedTensor& parameter) { return !parameter.tensor.requires_grad(); });
  return grouped(config, parameters, tied);
}

}  // namespace ddprun::trainer
