// One token after the other by a language model. text_generation.cpp calls it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/models/gpt.hpp"

namespace ddprun::trainer {

struct Sampling {
  double temperature = 1;  // 0: the likeliest token, of equal ones the first
  std::int64_t top_k = 0;  // 0: of all
  std::uint64_t seed = 0;
};

// The next token by its logits, float32 [1, vocabulary] on the CPU. Draws what Python draws from a CPU generator with
// `torch.multinomial(softmax(logits / temperature), 1)`, after logits below the k-th largest are set to -inf. Where a
// temperature is so small that logits overflow, Python draws nothing: here it is as 0. Precondition: the logits are finite.
std::int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, at::Generator& generator);

class Generation {
 public:
  // `model` in evaluation mode, on the device, made for `positions`. It outlives this. `end`: a token that ends a document;
  // what comes after one does not see what comes before it.
  Generation(Gpt& model, std::int64_t positions, c10::Device device, TrainConfig::Precision precision, Sampling sampling,
             std::optional<std::int64_t> end = {});

  // The token that follows these, 1 or more: of what is longer than the model's positions it sees the end. One more token than
  // in the call before costs a pass over that one, as long as all fit the positions; anything else costs a pass over all.
  // Throws DivergedError where the logits are not numbers.
  std::int64_t next(const std::vector<std::int64_t>& tokens);

 private:
  // What the model sees of them.
  std::span<const std::int64_t> window_of(const std::vector<std::int64_t>& tokens) const;
  // Of the last one.
  at::Tensor logits_after(std::span<const std::int64_t> window, bool whole);

  Gpt& model_;
  std::int64_t positions_;
  c10::Device device_;
  TrainConfig::Precision precision_;
  Sampling sampling_;
  std::optional<std::int64_t> end_;
  at::Generator generator_;
  SeenTokens seen_;
  std::vector<std::int64_t> window_;  // of the call before
};

}  // namespace ddprun::trainer
