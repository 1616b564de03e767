// GPT-2 (Radford et al. 2019) with the names of parameters that Hugging Face's GPT2LMHeadModel has, and its shapes: a Conv1D's
// weight is [inputs, outputs]. lm_head.weight is transformer.wte.weight. Its task is trainer/task/language_model.hpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

class Gpt : public torch::nn::Module {
 public:
  // tokens int64 [n, positions], positions at most those that it was made for -> logits [n, positions, vocabulary]
  virtual at::Tensor forward(const at::Tensor& tokens) = 0;
};

// With GPT-2's initialisation from `seed`, the same bits on every device, in training mode. The default generator is left as
// found. Throws UsageError where n_embd can't be divided by n_head.
std::shared_ptr<Gpt> make_gpt(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions, std::uint64_t seed,
                              c10::Device device = c10::kCPU);

}  // namespace ddprun::trainer
