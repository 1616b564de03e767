// Weights that begin with random numbers, on any device, and the linear layer of most models.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <c10/core/Device.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <cmath>
#include <memory>

#include "trainer/models/linear_layer.hpp"

namespace ddprun::trainer {

// `draw` fills a tensor with numbers of the default CPU generator. They are the same on every device, so that a seed gives the
// same weights everywhere. The device's memory comes first, and that of the host holds one tensor at a time: a model need not
// fit into it, and one that does not fit the device ends before anything is drawn.
template <class Draw>
void fill_by_drawing(const at::Tensor& weights, Draw draw) {
  const at::NoGradGuard no_gradients;
  if (weights.is_cpu()) {
    draw(weights);
    return;
  }
  const at::Tensor drawn = at::empty(weights.sizes(), weights.options().device(at::kCPU));
  draw(drawn);
  weights.copy_(drawn);
}

// torch::nn::Linear's names, weights and order of draws, made where they are to be.
struct Linear : LinearLayer {
  Linear(std::int64_t inputs, std::int64_t outputs, c10::Device device)
      : LinearLayer(at::empty({outputs, inputs}, at::TensorOptions(device)), Layout::kOutputsFirst),
        bias(register_parameter("bias", at::empty({outputs}, at::TensorOptions(device)))) {
    fill_by_drawing(weight, [](const at::Tensor& tensor) { torch::nn::init::kaiming_uniform_(tensor, std::sqrt(5)); });
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    fill_by_drawing(bias, [bound](const at::Tensor& tensor) { torch::nn::init::uniform_(tensor, -bound, bound); });
  }

  at::Tensor product(const at::Tensor& x) const override { return at::linear(x, weight, bias); }

  at::Tensor bias;
};

inline std::shared_ptr<Linear> linear(std::int64_t inputs, std::int64_t outputs, c10::Device device) {
  return std::make_shared<Linear>(inputs, outputs, device);
}

}  // namespace ddprun::trainer
