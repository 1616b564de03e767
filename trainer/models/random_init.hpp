// Fills initial weights with random numbers on any device. Also defines the linear layer that most models use.
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

// Fills `weights` with random numbers. `draw` fills a CPU tensor from the default CPU generator, so that a seed gives the same
// weights on every device. For any other device, the numbers are drawn in host memory and then copied. Host memory needs space
// for only one tensor at a time, so a model need not fit into host memory.
template <class Draw>
void fill_randomly(const at::Tensor& weights, Draw draw) {
  const at::NoGradGuard no_gradients;
  if (weights.is_cpu()) {
    draw(weights);
    return;
  }
  const at::Tensor drawn = at::empty(weights.sizes(), weights.options().device(at::kCPU));
  draw(drawn);
  weights.copy_(drawn);
}

// A linear layer with bias, allocated directly on the device. It has the same parameter names as torch::nn::Linear, and draws
// the same initial weights in the same order as torch::nn::Linear.
struct Linear : LinearLayer {
  Linear(std::int64_t inputs, std::int64_t outputs, c10::Device device)
      : LinearLayer(at::empty({outputs, inputs}, at::TensorOptions(device)), Layout::kOutputsFirst),
        bias(register_parameter("bias", at::empty({outputs}, at::TensorOptions(device)))) {
    fill_randomly(weight, [](const at::Tensor& tensor) { torch::nn::init::kaiming_uniform_(tensor, std::sqrt(5)); });
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    fill_randomly(bias, [bound](const at::Tensor& tensor) { torch::nn::init::uniform_(tensor, -bound, bound); });
  }

  at::Tensor product(const at::Tensor& x) const override { return at::linear(x, weight, bias); }

  at::Tensor bias;
};

inline std::shared_ptr<Linear> linear(std::int64_t inputs, std::int64_t outputs, c10::Device device) {
  return std::make_shared<Linear>(inputs, outputs, device);
}

}  // namespace ddprun::trainer
