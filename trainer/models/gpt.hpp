// The language models GPT-2 and Llama. Parameter names and shapes are the same as in Hugging Face's transformers, so that
// safetensors files can be exchanged. trainer/task/language_model.hpp is the task that trains them.
//
// GPT-2 (Radford et al. 2019) corresponds to GPT2LMHeadModel. The weight of a Conv1D has the shape [inputs, outputs].
// lm_head.weight and transformer.wte.weight are the same tensor.
//
// Llama (Touvron et al. 2023) corresponds to LlamaForCausalLM. It has RMSNorm, rotary positions, SwiGLU and grouped-query
// attention: several query heads share the keys and values of one head. Mistral, Qwen2 and Qwen3 are the same model with
// options: biases of the query, key and value layers (Qwen2), an RMSNorm of each head's queries and keys (Qwen3), and scaled
// rotary positions (Llama 3.1).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/models/text_context.hpp"

namespace ddprun::trainer {

class Gpt : public torch::nn::Module {
 public:
  // Computes the hidden states after the last norm, from tokens int64 [n, positions] to [n, positions, width]. GPT-2 accepts at
  // most as many positions as were passed to make_gpt().
  virtual at::Tensor hidden(const at::Tensor& tokens, const TextContext& context) = 0;
  // Multiplies by the output matrix: [n, positions, width] -> [n, positions, vocabulary]. `hidden` is the result of hidden(),
  // or only some positions of it, since logits are expensive with a large vocabulary.
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;
  at::Tensor forward(const at::Tensor& tokens, const TextContext& context = {}) { return logits(hidden(tokens, context)); }
};

// Makes a GPT-2 in training mode, with GPT-2's initialization. The same seed gives the same bits on every device. The state of
// the default generator is not changed. Throws UsageError if n_embd is not a multiple of n_head.
std::shared_ptr<Gpt> make_gpt(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions, std::uint64_t seed,
                              c10::Device device = c10::kCPU);

// Makes a Llama with Hugging Face's initialization. In all other respects, it works like make_gpt(). It needs no number of
// positions, since rotary positions have no weights. Throws UsageError in three cases: head_dim is 0 and n_embd is not a
// multiple of n_head, n_head is not a multiple of n_kv_head, or the width of a head is odd.
std::shared_ptr<Gpt> make_llama(const ModelConfig& config, std::int64_t vocabulary, std::uint64_t seed,
                                c10::Device device = c10::kCPU);

// Makes the language model that model.type selects.
std::shared_ptr<Gpt> make_language_model(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions,
                                         std::uint64_t seed, c10::Device device = c10::kCPU);

}  // namespace ddprun::trainer
