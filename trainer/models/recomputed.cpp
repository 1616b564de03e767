// Implementation of recomputed.hpp. The block is one autograd node, whose inputs are x and the parameters. The node's backward
// pass computes the gradients of these inputs with a nested autograd::grad() and returns them. The nested call must not
// accumulate gradients in the parameters, because that would run the hooks of DDP's Reducer inside the nested pass.
#include "trainer/models/recomputed.hpp"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>
#include <vector>

#include "trainer/models/seeded_generator.hpp"

namespace ddprun::trainer {
namespace {

using Pass = std::function<at::Tensor(const at::Tensor&)>;
using torch::autograd::tensor_list;

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

class AutocastGuard {
 public:
  AutocastGuard(c10::DeviceType device, const AutocastState& state) : device_(device), after_(AutocastState::of(device)) {
    at::autocast::increment_nesting();
    state.set(device);
  }
  ~AutocastGuard() {
    after_.set(device_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  c10::DeviceType device_;
  AutocastState after_;
};

// Data of the first call of `block` that the second call needs in addition to x.
struct FirstCall : torch::CustomClassHolder {
  Pass block;
  at::Tensor generator{};  // state of the generator before the first call; undefined if the block draws no random numbers
  AutocastState autocast{};
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static constexpr const char* kFirstCall = "first call";

  static at::Tensor forward(torch::autograd::AutogradContext* context, const Pass& block, bool draws, const at::Tensor& x,
                            at::TensorList parameters) {
    auto first = c10::make_intrusive<FirstCall>();
    first->block = block;
    if (draws) first->generator = generator_state(x.device());
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
    const at::Tensor again = call_again(first, inputs.front());
    if (!needs_x) inputs.erase(inputs.begin());
    // The arguments `block` and `draws` are not tensors, so their gradients are undefined.
    tensor_list results(2);
    if (!needs_x) results.emplace_back();
    for (at::Tensor& gradient : torch::autograd::grad({again}, inputs, gradients, /*retain_graph=*/false,
                                                      /*create_graph=*/false, /*allow_unused=*/true)) {
      results.push_back(std::move(gradient));
    }
    return results;
  }

 private:
  static at::Tensor call_again(const FirstCall& first, const at::Tensor& x) {
    const c10::AutoGradMode records(true);
    std::optional<SeededGenerator> generator;
    if (first.generator.defined()) generator.emplace(x.device(), first.generator);
    const AutocastGuard autocast(x.device().type(), first.autocast);
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
