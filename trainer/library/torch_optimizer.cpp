// Implementation of torch_optimizer.hpp. LibTorch creates the state of a parameter in the first step in which the parameter has
// a gradient. Before that step, state() returns zeros, which is the initial state of all these optimizers.
#include "trainer/library/torch_optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/optim/tensor_fit.hpp"

namespace ddprun::trainer {
namespace {

namespace optim = torch::optim;

// An optimizer's state for one parameter: pointers to its tensors and to its step count.
struct Fields {
  std::vector<std::pair<const char*, at::Tensor*>> tensors;
  std::int64_t* step = nullptr;
};

Fields fields_of(optim::SGDParamState& state, const optim::SGDOptions& options) {
  Fields fields;
  if (options.momentum() != 0) fields.tensors.emplace_back("momentum_buffer", &state.momentum_buffer());
  return fields;
}
template <typename State, typename Options>
Fields fields_of_adam(State& state, const Options& options) {
  Fields fields{.tensors = {{"exp_avg", &state.exp_avg()}, {"exp_avg_sq", &state.exp_avg_sq()}}, .step = &state.step()};
  if (options.amsgrad()) fields.tensors.emplace_back("max_exp_avg_sq", &state.max_exp_avg_sq());
  return fields;
}
Fields fields_of(optim::AdamParamState& state, const optim::AdamOptions& options) {
  return fields_of_adam(state, options);
}
Fields fields_of(optim::AdamWParamState& state, const optim::AdamWOptions& options) {
  return fields_of_adam(state, options);
}
Fields fields_of(optim::RMSpropParamState& state, const optim::RMSpropOptions& options) {
  Fields fields{.tensors = {{"square_avg", &state.square_avg()}}, .step = &state.step()};
  if (options.momentum() > 0) fields.tensors.emplace_back("momentum_buffer", &state.momentum_buffer());
  if (options.centered()) fields.tensors.emplace_back("grad_avg", &state.grad_avg());
  return fields;
}
Fields fields_of(optim::AdagradParamState& state, const optim::AdagradOptions&) {
  return {.tensors = {{"sum", &state.sum()}}, .step = &state.step()};
}

// Returns true if the saved state belongs to a parameter whose momentum buffer did not exist when it was saved. Such a buffer
// was saved as zeros. It must stay undefined now, because LibTorch's first step with momentum copies the gradient to the
// buffer.
bool starts_without_state(const at::Tensor& saved, bool has_step_count) {
  return !has_step_count && !saved.any().item<bool>();
}

template <typename ParamState, typename Options>
class TorchOptimizer final : public Optimizer {
 public:
  TorchOptimizer(optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters) : optimizer_(optimizer) {
    std::unordered_map<const c10::TensorImpl*, std::string> names;
    for (const NamedTensor& parameter : parameters) names.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
    for (optim::OptimizerParamGroup& group : optimizer.param_groups()) {
      for (at::Tensor& parameter : group.params()) {
        const auto name = names.find(parameter.unsafeGetTensorImpl());
        if (name == names.end())
          throw UsageError(
              "the optimizer has a parameter that the model does not have; create it from the parameters of the model");
        parameters_.push_back({name->second, parameter, &group});
      }
    }
  }

  void step(double /*lr*/) override { optimizer_.step(); }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> entries;
    visit([&](const std::string& name, const at::Tensor& parameter, const Fields& fields) {
      for (const auto& [field, tensor] : fields.tensors) {
        entries.push_back({name + "." + field, tensor->defined() ? *tensor : at::zeros_like(parameter)});
      }
      if (fields.step) entries.push_back({name + ".step", at::scalar_tensor(static_cast<double>(*fields.step), at::kDouble)});
    });
    return entries;
  }

  void load_state(const std::vector<NamedTensor>& saved) override {
    if (const std::string problem = misfit(state(), saved); !problem.empty()) {
      throw UsageError("the saved optimizer state does not fit this optimizer: " + problem);
    }
    const at::NoGradGuard no_gradients;
    const auto tensors = by_name(saved);
    visit(
        [&](const std::string& name, const at::Tensor& parameter, const Fields& fields) {
          for (const auto& [field, tensor] : fields.tensors) {
            const at::Tensor& from = *tensors.at(name + "." + field);
            if (tensor->defined()) {
              tensor->copy_(from);
            } else if (!starts_without_state(from, fields.step != nullptr)) {
              *tensor = at::zeros_like(parameter).copy_(from);
            }
          }
          if (fields.step) *fields.step = static_cast<std::int64_t>(tensors.at(name + ".step")->item<double>());
        },
        MissingState::kCreate);
  }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    optim::OptimizerParamGroup* group;
  };
  using Visitor = std::function<void(const std::string& name, const at::Tensor& parameter, const Fields& fields)>;
  enum class MissingState { kTemporary, kCreate };

  // Calls `use` with the state of each trainable parameter. If a parameter has no state, `use` gets a temporary one. With
  // kCreate, the temporary state is added to the optimizer if `use` has filled it.
  void visit(const Visitor& use, MissingState missing = MissingState::kTemporary) const {
    for (const Parameter& parameter : parameters_) {
      if (!parameter.tensor.requires_grad()) continue;
      const auto& options = static_cast<const Options&>(parameter.group->options());
      auto& all = optimizer_.state();
      const auto found = all.find(parameter.tensor.unsafeGetTensorImpl());
      if (found != all.end()) {
        use(parameter.name, parameter.tensor, fields_of(static_cast<ParamState&>(*found->second), options));
        continue;
      }
      auto fresh = std::make_unique<ParamState>();
      const Fields fields = fields_of(*fresh, options);
      use(parameter.name, parameter.tensor, fields);
      if (missing == MissingState::kCreate && has_state(fields)) all[parameter.tensor.unsafeGetTensorImpl()] = std::move(fresh);
    }
  }

  // Returns whether the state is filled. An empty state is not added: the optimizer creates it in its first step.
  static bool has_state(const Fields& fields) {
    if (fields.step) return *fields.step > 0;
    for (const auto& [field, tensor] : fields.tensors) {
      if (tensor->defined()) return true;
    }
    return false;
  }

  optim::Optimizer& optimizer_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Optimizer> wrap_optimizer(optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters) {
  if (dynamic_cast<optim::SGD*>(&optimizer)) {
    return std::make_unique<TorchOptimizer<optim::SGDParamState, optim::SGDOptions>>(optimizer, parameters);
  }
  if (dynamic_cast<optim::Adam*>(&optimizer)) {
    return std::make_unique<TorchOptimizer<optim::AdamParamState, optim::AdamOptions>>(optimizer, parameters);
  }
  if (dynamic_cast<optim::AdamW*>(&optimizer)) {
    return std::make_unique<TorchOptimizer<optim::AdamWParamState, optim::AdamWOptions>>(optimizer, parameters);
  }
  if (dynamic_cast<optim::RMSprop*>(&optimizer)) {
    return std::make_unique<TorchOptimizer<optim::RMSpropParamState, optim::RMSpropOptions>>(optimizer, parameters);
  }
  if (dynamic_cast<optim::Adagrad*>(&optimizer)) {
    return std::make_unique<TorchOptimizer<optim::AdagradParamState, optim::AdagradOptions>>(optimizer, parameters);
  }
  throw UsageError(
      "the state of this optimizer cannot be saved; expected SGD, Adam, AdamW, RMSprop or Adagrad of torch::optim");
}

}  // namespace ddprun::trainer
