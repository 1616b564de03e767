// Random initial weights on any device, and the linear layer of most models.
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

// `draw` fills a tensor with numbers of the default CPU generator, so that a seed gives the same weights on every device. The
// device's memory is allocated first, and host memory holds one tensor at a time. So a model need not fit into host memory, and
// one that does not fit the device fails before the first draw.
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

// The names, weights and order of draws of torch::nn::Linear, allocated directly on the device.
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
