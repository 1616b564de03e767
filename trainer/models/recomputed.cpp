// Implementation of recomputed.hpp. The parameters are inputs of the autograd node, and their gradients are its results. If a
// nested backward pass added to the gradients directly, DDP's Reducer would finish inside of it.
#include "trainer/models/recomputed.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

using Pass = std::function<at::Tensor(const at::Tensor&)>;
using torch::autograd::tensor_list;

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// Sets the state of the device's default generator while it exists, then restores the earlier state.
class GeneratorAsItWas {
 public:
  GeneratorAsItWas(c10::Device device, const at::Tensor& state)
      : generator_(at::globalContext().defaultGenerator(device)), after_(state_of(generator_)) {
    set_state(generator_, state);
  }
  ~GeneratorAsItWas() { set_state(generator_, after_); }
  GeneratorAsItWas(const GeneratorAsItWas&) = delete;
  GeneratorAsItWas& operator=(const GeneratorAsItWas&) = delete;

 private:
  at::Generator generator_;
  at::Tensor after_;
};

// The autocast settings of a thread for one type of device.
struct AutocastState {
  bool enabled = false;
  at::ScalarType type = at::kFloat;

  static AutocastState of(c10::DeviceType device) {
    return {.enabled = at::autocast::is_autocast_enabled(device), .type = at::autocast::get_autocast_dtype(device)};
  }
  void set(c10::DeviceType device) const {
    at::autocast::set_autocast_dtype(device, type);
    at::autocast::set_autocast_enabled(device, enabled);
  }
};

class AutocastAsItWas {
 public:
  AutocastAsItWas(c10::DeviceType device, const AutocastState& state) : device_(device), after_(AutocastState::of(device)) {
    at::autocast::increment_nesting();
    state.set(device);
  }
  ~AutocastAsItWas() {
    after_.set(device_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  AutocastAsItWas(const AutocastAsItWas&) = delete;
  AutocastAsItWas& operator=(const AutocastAsItWas&) = delete;

 private:
  c10::DeviceType device_;
  AutocastState after_;
};

// The data that the second call needs in addition to its input.
struct FirstCall : torch::CustomClassHolder {
  Pass block;
  at::Tensor generator{};  // undefined if the block draws nothing
  AutocastState autocast{};
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static constexpr const char* kFirstCall = "first call";

  static at::Tensor forward(torch::autograd::AutogradContext* context, const Pass& block, bool draws, const at::Tensor& x,
                            at::TensorList parameters) {
    auto first = c10::make_intrusive<FirstCall>();
    first->block = block;
    if (draws) first->generator = state_of(at::globalContext().defaultGenerator(x.device()));
    first->autocast = AutocastState::of(x.device().type());
    tensor_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(saved));
    context->saved_data[kFirstCall] = c10::IValue::make_capsule(std::move(first));
    return block(x);
  }

  static tensor_list backward(torch::autograd::AutogradContext* context, const tensor_list& gradients) {
    const auto kept = context->saved_data[kFirstCall].toCapsule();
    const auto& first = static_cast<const FirstCall&>(*kept);
    tensor_list inputs = context->get_saved_variables();
    const bool needs_x = inputs.front().requires_grad();
    inputs.front() = inputs.front().detach().requires_grad_(needs_x);
    const at::Tensor again = called_again(first, inputs.front());
    if (!needs_x) inputs.erase(inputs.begin());
    tensor_list results(2);  // gradients of `block` and `draws`, which have none
    if (!needs_x) results.emplace_back();
    for (at::Tensor& gradient : torch::autograd::grad({again}, inputs, gradients, /*retain_graph=*/false,
                                                      /*create_graph=*/false, /*allow_unused=*/true)) {
      results.push_back(std::move(gradient));
    }
    return results;
  }

 private:
  static at::Tensor called_again(const FirstCall& first, const at::Tensor& x) {
    const c10::AutoGradMode records(true);
    std::optional<GeneratorAsItWas> generator;
    if (first.generator.defined()) generator.emplace(x.device(), first.generator);
    const AutocastAsItWas autocast(x.device().type(), first.autocast);
    return first.block(x);
  }
};

}  // namespace

at::Tensor recomputed(const torch::nn::Module& parameters, const at::Tensor& x, const Pass& block, bool draws) {
  if (!c10::GradMode::is_enabled()) return block(x);
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : parameters.parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  return Recomputed::apply(block, draws, x, at::TensorList(trained));
}

}  // namespace ddprun::trainer
