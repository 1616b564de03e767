// The language models; their task is trainer/task/language_model.hpp.
//
// GPT-2 (Radford et al. 2019) with the parameter names and shapes of Hugging Face's GPT2LMHeadModel: a Conv1D's weight is
// [inputs, outputs]. lm_head.weight is transformer.wte.weight.
//
// Llama (Touvron et al. 2023) with the names and shapes of LlamaForCausalLM: RMSNorm, rotary positions, SwiGLU, and keys and
// values that are shared by several heads.
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
  // tokens int64 [n, positions] -> [n, positions, width]. The number of positions is at most that of the constructor.
  virtual at::Tensor hidden(const at::Tensor& tokens, const TextContext& context) = 0;
  // The result of hidden(), or a part of its positions -> [n, positions, vocabulary]
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;
  at::Tensor forward(const at::Tensor& tokens, const TextContext& context = {}) { return logits(hidden(tokens, context)); }
};

// Makes a GPT-2 with its initialisation from `seed`, with the same bits on every device, in training mode. The state of the
// default generator is restored. Throws UsageError if n_embd is not a multiple of n_head.
std::shared_ptr<Gpt> make_gpt(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions, std::uint64_t seed,
                              c10::Device device = c10::kCPU);

// Makes a Llama with Hugging Face's initialisation, otherwise like make_gpt(). Positions are rotations and have no weights.
// Throws UsageError if n_embd is not a multiple of n_head, if n_head is not a multiple of n_kv_head, or if a head's width is
// odd.
std::shared_ptr<Gpt> make_llama(const ModelConfig& config, std::int64_t vocabulary, std::uint64_t seed,
                                c10::Device device = c10::kCPU);

// Makes the one that model.type selects.
std::shared_ptr<Gpt> make_language_model(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions,
                                         std::uint64_t seed, c10::Device device = c10::kCPU);

}  // namespace ddprun::trainer
