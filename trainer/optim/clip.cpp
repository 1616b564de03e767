// Implements gradient clipping with the arithmetic of torch.nn.utils.clip_grad_norm_, so that the results are bit-identical. It
// computes the norm of each tensor, then the norm of these norms, and then one float32 coefficient for all tensors. The
// training loop calls these functions between the backward pass and the optimizer step.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

namespace {

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    if (parameter.mutable_grad().defined()) gradients.push_back(parameter.mutable_grad());
  }
  return gradients;
}

at::Tensor norm_of(const std::vector<at::Tensor>& gradients) {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
}

}  // namespace

double clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm) {
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return 0.0;
  const auto norm = norm_of(gradients).item<float>();
  // Python's code is max_norm / (norm + 1e-6). PyTorch evaluates it in float32 as reciprocal(norm + 1e-6) * max_norm.
  const float coefficient = 1.0F / (norm + 1e-6F) * static_cast<float>(max_norm);
  // Python clamps the coefficient to 1 and always multiplies. A multiplication by 1 changes no bit, so this code skips it. A
  // NaN coefficient is applied, as in Python. The training loss then becomes NaN, and the check of the loss ends the run.
  if (!(coefficient >= 1.0F)) at::_foreach_mul_(gradients, static_cast<double>(coefficient));
  return static_cast<double>(norm);
}

// The CPU must not read the norm, because it would have to wait for all kernels of the step. So the coefficient stays on the
// GPU, and this function always multiplies by it, as Python does.
at::Tensor clip_grad_norm_on_device(const std::vector<at::Tensor>& parameters, double max_norm) {
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return {};
  const at::Tensor norm = norm_of(gradients);
  const at::Tensor coefficient = norm.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
  at::_foreach_mul_(gradients, coefficient);
  return norm;
}

void clip_grad_value(const std::vector<at::Tensor>& parameters, double limit) {
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return;
  at::_foreach_clamp_min_(gradients, -limit);
  at::_foreach_clamp_max_(gradients, limit);
}

at::Tensor grad_norm(const std::vector<at::Tensor>& parameters) {
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  return gradients.empty() ? at::Tensor() : norm_of(gradients);
}

}  // namespace ddprun::trainer
