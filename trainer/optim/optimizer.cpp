// Implementation of optimizer.hpp. SGD, AdamW and Adam use fused kernels, and Lion uses foreach kernels. The lists of tensors
// for the kernels are kept between steps, so a step only collects the gradients and calls the kernel.
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

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/optim/name_patterns.hpp"
#include "trainer/optim/tensor_fit.hpp"

namespace ddprun::trainer {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors zeros_like_each(const Tensors& tensors) {
  Tensors zeros;
  zeros.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor, at::TensorOptions().requires_grad(false)));
  return zeros;
}

// Copies `saved` into the tensors of `state`, which share memory with the optimizer. Throws UsageError before any copy if names
// or shapes differ.
void copy_state(const std::vector<NamedTensor>& state, const std::vector<NamedTensor>& saved) {
  if (const std::string problem = misfit(state, saved); !problem.empty()) {
    throw UsageError("the saved optimizer state does not fit the model and optimizer of this config: " + problem +
                     ". Check \"model\" and \"optimizer\" in the config, or use --fresh to start over");
  }
  copy_by_name(state, saved);
}

// Base class of the optimizers. All its parameters have the same learning rate and weight decay. The state has one tensor for
// each parameter and field.
class SingleGroup : public Optimizer {
 public:
  SingleGroup(const OptimizerConfig& config, std::vector<NamedTensor> parameters) : config_(config) {
    for (NamedTensor& parameter : parameters) {
      if (!parameter.tensor.requires_grad()) continue;
      names_.push_back(std::move(parameter.name));
      all_.parameters.push_back(std::move(parameter.tensor));
    }
    gradients_.reserve(names_.size());
  }

  void step(double lr) final {
    gradients_.clear();  // if the previous step threw, the list still has its gradients
    for (const at::Tensor& parameter : all_.parameters) {
      const at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined()) gradients_.push_back(gradient);
    }
    const c10::NoGradGuard no_grad;
    if (gradients_.size() == names_.size() && !names_.empty()) {
      update(all_, gradients_, lr);
    } else if (!gradients_.empty()) {
      update(lists_with_gradients(), gradients_, lr);
    }
    gradients_.clear();  // releases the gradients, so that zero_grad can free their memory
  }

  std::vector<NamedTensor> state() const final {
    std::vector<NamedTensor> state;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      for (std::size_t field = 0; field < fields_.size(); ++field) {
        state.push_back({names_[i] + "." + fields_[field], all_.state[field][i]});
      }
    }
    return state;
  }

  void load_state(const std::vector<NamedTensor>& saved) final { copy_state(state(), saved); }

 protected:
  struct Lists {
    Tensors parameters;
    std::vector<Tensors> state;  // one list for each field, in the order of add_field()
  };

  const OptimizerConfig& config() const { return config_; }
  const Tensors& parameters() const { return all_.parameters; }
  void add_field(const char* name, Tensors initial) {
    fields_.emplace_back(name);
    all_.state.push_back(std::move(initial));
  }

 private:
  // Updates the parameters and the state in `lists`. The lists have at least one parameter, and autograd is disabled.
  virtual void update(const Lists& lists, const Tensors& gradients, double lr) = 0;

  Lists lists_with_gradients() const {
    Lists lists{.parameters = {}, .state = std::vector<Tensors>(fields_.size())};
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!all_.parameters[i].mutable_grad().defined()) continue;
      lists.parameters.push_back(all_.parameters[i]);
      for (std::size_t field = 0; field < fields_.size(); ++field) lists.state[field].push_back(all_.state[field][i]);
    }
    return lists;
  }

  OptimizerConfig config_;
  std::vector<std::string> names_;
  std::vector<std::string> fields_;
  Lists all_;
  Tensors gradients_;
};

// Computes the same as torch.optim.SGD(fused=True) with dampening 0. In its first step, PyTorch copies the gradient to the
// momentum buffer, so it must know which step is the first. This class starts with a buffer of zeros: momentum * 0 + gradient
// gives the same value, except for the sign of a zero. So the result of a step depends only on the tensors, and a new rank
// that has received the tensors gets the same bits as a rank that has run all steps.
class Sgd : public SingleGroup {
 public:
  Sgd(const OptimizerConfig& config, std::vector<NamedTensor> named) : SingleGroup(config, std::move(named)) {
    if (config.momentum != 0) add_field("momentum_buffer", zeros_like_each(parameters()));
  }

 private:
  void update(const Lists& lists, const Tensors& gradients, double lr) override {
    const Tensors none;
    const Tensors& buffers = lists.state.empty() ? none : lists.state[0];
    at::_fused_sgd_(lists.parameters, gradients, buffers, config().weight_decay, config().momentum, lr, /*dampening=*/0.0,
                    config().nesterov, /*maximize=*/false, /*is_first_step=*/false);
  }
};

// Computes the same as torch.optim.AdamW or torch.optim.Adam with fused=True and without amsgrad. The two differ in how they
// apply the weight decay.
class Adam : public SingleGroup {
 public:
  Adam(const OptimizerConfig& config, std::vector<NamedTensor> named) : SingleGroup(config, std::move(named)) {
    Tensors steps;
    for (const at::Tensor& parameter : parameters()) {
      // As in PyTorch, each parameter has a scalar step count. It is on the parameter's device, where the CUDA kernel reads it.
      steps.push_back(at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false)));
    }
    add_field("step", std::move(steps));
    add_field("exp_avg", zeros_like_each(parameters()));
    add_field("exp_avg_sq", zeros_like_each(parameters()));
  }

 private:
  void update(const Lists& lists, const Tensors& gradients, double lr) override {
    const Tensors& steps = lists.state[0];
    if (steps.front().is_cpu()) {
      // This increments the scalars directly: for a small model, one at:: call per scalar would take longer than the update.
      for (const at::Tensor& step : steps) *step.mutable_data_ptr<float>() += 1.0F;
    } else {
      at::_foreach_add_(steps, 1);
    }
    const auto update_by = [&](auto kernel) {
      kernel(lists.parameters, gradients, lists.state[1], lists.state[2], /*max_exp_avg_sqs=*/{}, steps, lr, config().betas[0],
             config().betas[1], config().weight_decay, config().eps, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{},
             /*found_inf=*/{});
    };
    if (config().type == OptimizerConfig::Type::kAdam) {
      update_by(at::_ops::_fused_adam_::call);
    } else {
      update_by(at::_ops::_fused_adamw_::call);
    }
  }
};

// Lion (Chen et al. 2023, algorithm 2), with the same operations in the same order as the authors' PyTorch code. The update is
// the sign of betas[0] * moment + (1 - betas[0]) * gradient. The moment itself is then updated with betas[1].
class Lion : public SingleGroup {
 public:
  Lion(const OptimizerConfig& config, std::vector<NamedTensor> named) : SingleGroup(config, std::move(named)) {
    add_field("exp_avg", zeros_like_each(parameters()));
  }

 private:
  void update(const Lists& lists, const Tensors& gradients, double lr) override {
    const Tensors& means = lists.state[0];
    const auto& betas = config().betas;
    at::_foreach_mul_(lists.parameters, 1 - lr * config().weight_decay);
    const Tensors updates = at::_foreach_mul(means, betas[0]);
    at::_foreach_add_(updates, at::_foreach_mul(gradients, 1 - betas[0]));
    at::_foreach_sign_(updates);
    at::_foreach_add_(lists.parameters, updates, -lr);
    at::_foreach_mul_(means, betas[1]);
    at::_foreach_add_(means, gradients, 1 - betas[1]);
  }
};

std::unique_ptr<SingleGroup> single_group(const OptimizerConfig& config, std::vector<NamedTensor> parameters) {
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

// Several groups of parameters with different settings. step() updates the groups one after another, as Python does with
// param_groups.
class Grouped : public Optimizer {
 public:
  void add(std::unique_ptr<SingleGroup> group, double lr_scale) { groups_.push_back({std::move(group), lr_scale}); }

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
    std::unique_ptr<SingleGroup> optimizer;
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
      throw UsageError("optimizer.groups: all parameters that match '" + patterns[*number] +
                       "' belong to earlier groups. Move this group before them, or remove it");
    }
    if (!members.empty()) all->add(single_group(of_group, std::move(members)), lr_scale);
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
  if (config.groups.empty()) return single_group(config, std::move(parameters));
  std::erase_if(parameters, [](const NamedTensor& parameter) { return !parameter.tensor.requires_grad(); });
  return grouped(config, parameters, tied);
}

}  // namespace ddprun::trainer
