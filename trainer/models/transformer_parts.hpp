// Parts that gpt.cpp, llama.cpp and vit.cpp share.
#pragma once

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/config/train_config.hpp"
#include "trainer/models/drawn.hpp"

namespace ddprun::trainer {

inline constexpr double kSpread = 0.02;  // standard deviation of an initial weight

// A probability of 0 takes no number from the generator.
inline at::Tensor dropped(at::Tensor input, double probability, bool training) {
  return probability > 0 && training ? at::dropout(input, probability, training) : std::move(input);
}

struct LayerNorm : torch::nn::Module {
  LayerNorm(std::int64_t width, double added, c10::Device device)
      : epsilon(added),
        weight(register_parameter("weight", at::ones({width}, at::TensorOptions(device)))),
        bias(register_parameter("bias", at::zeros({width}, at::TensorOptions(device)))) {}
  at::Tensor of(const at::Tensor& x) const { return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon); }
  double epsilon;
  at::Tensor weight;
  at::Tensor bias;
};

struct Embedding : torch::nn::Module {
  Embedding(std::int64_t count, std::int64_t width, c10::Device device)
      : weight(register_parameter("weight", at::empty({count, width}, at::TensorOptions(device)))) {
    fill_by_drawing(weight, [](const at::Tensor& tensor) { torch::nn::init::normal_(tensor, 0, kSpread); });
  }
  at::Tensor weight;
};

// The embedding under a second name.
struct TiedHead : torch::nn::Module {
  explicit TiedHead(const at::Tensor& tied) : weight(register_parameter("weight", tied)) {}
  at::Tensor weight;
};

// Throws UsageError if the heads can't have equal widths.
inline void require_equal_heads(const ModelConfig& config) {
  if (config.n_embd % config.n_head != 0) {
    throw UsageError("model.n_embd " + std::to_string(config.n_embd) + " can't be divided by model.n_head " +
                     std::to_string(config.n_head) + ", and each head needs the same width");
  }
}

}  // namespace ddprun::trainer
