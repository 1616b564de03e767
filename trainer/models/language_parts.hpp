// What the language models have in common: gpt.cpp and llama.cpp.
#pragma once

#include <ATen/ops/empty.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "common/base/error.hpp"
#include "common/config/train_config.hpp"
#include "trainer/models/drawn.hpp"

namespace ddprun::trainer {

inline constexpr double kSpread = 0.02;  // of a weight's first value

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

// Throws UsageError where heads would differ in width.
inline void require_equal_heads(const ModelConfig& config) {
  if (config.n_embd % config.n_head != 0) {
    throw UsageError("model.n_embd " + std::to_string(config.n_embd) + " can't be divided by model.n_head " +
                     std::to_string(config.n_head) + ", and each head needs the same width");
  }
}

}  // namespace ddprun::trainer
