// The language models; their task is trainer/task/language_model.hpp.
//
// GPT-2 (Radford et al. 2019) with the names of parameters that Hugging Face's GPT2LMHeadModel has, and its shapes: a Conv1D's
// weight is [inputs, outputs]. lm_head.weight is transformer.wte.weight.
//
// Llama (Touvron et al. 2023) with the names and shapes of LlamaForCausalLM: RMSNorm, rotary positions, SwiGLU, and keys and
// values that several heads share.
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
  // tokens int64 [n, positions], positions at most those that it was made for -> [n, positions, width]
  virtual at::Tensor hidden(const at::Tensor& tokens, const TextContext& context) = 0;
  // What hidden() gives, or a part of its positions -> [n, positions, vocabulary]
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;
  at::Tensor forward(const at::Tensor& tokens, const TextContext& context = {}) { return logits(hidden(tokens, context)); }
};

// With GPT-2's initialisation from `seed`, the same bits on every device, in training mode. The default generator is left as
// found. Throws UsageError where n_embd can't be divided by n_head.
std::shared_ptr<Gpt> make_gpt(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions, std::uint64_t seed,
                              c10::Device device = c10::kCPU);

// Llama, with the initialisation of Hugging Face's, likewise. Positions are rotated and have no weights. Throws UsageError
// where n_embd can't be divided by n_head, or n_head by n_kv_head, or where a head's width is odd.
std::shared_ptr<Gpt> make_llama(const ModelConfig& config, std::int64_t vocabulary, std::uint64_t seed,
                                c10::Device device = c10::kCPU);

// Whichever of them model.type says.
std::shared_ptr<Gpt> make_language_model(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions,
                                         std::uint64_t seed, c10::Device device = c10::kCPU);

}  // namespace ddprun::trainer
