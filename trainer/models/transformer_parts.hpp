// Layers that the transformers gpt.cpp, llama.cpp and vit.cpp share. mlp_and_cnn.cpp uses only dropped().
#pragma once

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/train_config.hpp"
#include "trainer/models/random_init.hpp"
#include "trainer/models/recomputed.hpp"

namespace ddprun::trainer {

inline constexpr double kSpread = 0.02;  // standard deviation of the initial weights

// Dropout. With a probability of 0, returns the input and draws no random numbers.
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
    fill_randomly(weight, [](const at::Tensor& tensor) { torch::nn::init::normal_(tensor, 0, kSpread); });
  }
  at::Tensor weight;
};

// An output layer that shares the embedding's weight tensor, which is registered under a second name.
struct TiedHead : torch::nn::Module {
  explicit TiedHead(const at::Tensor& tied) : weight(register_parameter("weight", tied)) {}
  at::Tensor weight;
};

// A pre-norm transformer block: attention and a feedforward network, each with a norm before it and a residual connection. Each
// model's derived class registers the four parts under its own names. The order in which it registers them is the order of the
// parameters.
template <class Norm, class Attention, class Feedforward>
struct TransformerBlock : torch::nn::Module {
  // `place` is the index of the block in the model. `place` and `context` are arguments for the attention.
  template <class... Context>
  at::Tensor of(at::Tensor x, std::size_t place, const Context&... context) const {
    x = x + attention->of(attention_norm->of(x), place, context...);
    return x + feedforward->of(feedforward_norm->of(x));
  }
  std::shared_ptr<Norm> attention_norm;
  std::shared_ptr<Attention> attention;
  std::shared_ptr<Norm> feedforward_norm;
  std::shared_ptr<Feedforward> feedforward;
};

// The blocks of a model. Their names are "0", "1", and so on.
template <class Block>
class BlockList : public torch::nn::Module {
 public:
  template <class... Arguments>
  explicit BlockList(const ModelConfig& config, const Arguments&... arguments) : recomputes_(config.activation_checkpointing) {
    for (std::int64_t i = 0; i < config.n_layer; ++i) {
      blocks_.push_back(register_module(std::to_string(i), std::make_shared<Block>(config, arguments...)));
    }
  }

  // Runs all blocks. `draws` must be true if a block draws random numbers. With activation checkpointing, `context` is copied,
  // because the backward pass uses it again.
  template <class... Context>
  at::Tensor of(at::Tensor x, bool draws, const Context&... context) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (recomputes_) {
        const auto pass = [block = blocks_[i].get(), i, context...](const at::Tensor& input) {
          return block->of(input, i, context...);
        };
        x = recomputed(*blocks_[i], x, pass, draws);
      } else {
        x = blocks_[i]->of(std::move(x), i, context...);
      }
    }
    return x;
  }

 private:
  bool recomputes_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

// Throws UsageError if n_embd is not a multiple of n_head.
inline void require_equal_heads(const ModelConfig& config) {
  if (config.n_embd % config.n_head != 0) {
    throw UsageError("model.n_embd " + std::to_string(config.n_embd) + " is not divisible by model.n_head " +
                     std::to_string(config.n_head) + ", but all heads need the same width");
  }
}

}  // namespace ddprun::trainer
