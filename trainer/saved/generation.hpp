// Generates one token after the other with a language model. Called by text_generation.cpp.
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
  double temperature = 1;  // 0: the likeliest token, or the first of several
  std::int64_t top_k = 0;  // 0: no limit
  std::uint64_t seed = 0;
};

// Chooses the next token from its logits, float32 [1, vocabulary] on the CPU. Sets logits below the k-th largest to -inf. Then
// draws the same token as Python's `torch.multinomial(softmax(logits / temperature), 1)` with a CPU generator. If a tiny
// temperature makes logits overflow, Python fails; here it counts as 0. Precondition: the logits are finite.
std::int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, at::Generator& generator);

class Generation {
 public:
  // `model`: in evaluation mode, on the device, made for `positions`; it must outlive this object. `end`: token that ends a
  // document. Tokens after it do not attend to tokens before it.
  Generation(Gpt& model, std::int64_t positions, c10::Device device, TrainConfig::Precision precision, Sampling sampling,
             std::optional<std::int64_t> end = {});

  // Returns the token after `tokens`, which has at least 1. Of a longer text the model sees only the end that fits its
  // positions. If the call adds one token to those of the last call and all fit, it costs a pass over that token. Otherwise it
  // costs a pass over all. Throws DivergedError for logits that are NaN or infinite.
  std::int64_t next(const std::vector<std::int64_t>& tokens);

 private:
  // The part of the tokens that the model sees.
  std::span<const std::int64_t> window_of(const std::vector<std::int64_t>& tokens) const;
  // The logits after the last token of the window.
  at::Tensor logits_after(std::span<const std::int64_t> window, bool whole);

  Gpt& model_;
  std::int64_t positions_;
  c10::Device device_;
  TrainConfig::Precision precision_;
  Sampling sampling_;
  std::optional<std::int64_t> end_;
  at::Generator generator_;
  SeenTokens seen_;
  std::vector<std::int64_t> window_;  // window of the last call
};

}  // namespace ddprun::trainer
