// Generates text with a language model, one token per call. text_generation.cpp uses this class.
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
  double temperature = 1;  // divisor of the logits; if 0, the most likely token is chosen (the first one if several are equal)
  std::int64_t top_k = 0;  // samples only from the top_k most likely tokens; if 0, from all tokens
  std::uint64_t seed = 0;
};

// Samples the next token from its logits, which must be finite float32 [1, vocabulary] on the CPU. With top_k = k, sets the
// logits below the k-th largest to -inf. Then returns the same token as Python's `torch.multinomial(softmax(logits /
// temperature), 1)` with a CPU generator. If logits / temperature overflows, Python would fail; this function treats the
// temperature as 0.
std::int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, at::Generator& generator);

class Generation {
 public:
  // `model` must be in evaluation mode and on `device`, and must outlive this object. `positions` is the largest number of
  // tokens that the model accepts. `end` is the token that ends a document: tokens after it do not attend to tokens before it.
  Generation(Gpt& model, std::int64_t positions, c10::Device device, TrainConfig::Precision precision, Sampling sampling,
             std::optional<std::int64_t> end = {});

  // Returns the token that follows `tokens`, which has at least one. If there are more tokens than positions, the model gets
  // only the last ones. If `tokens` has one more token than in the last call, and all tokens fit, the call runs the model only
  // for the new token. Otherwise it runs the model for all tokens. Throws DivergedError if the logits are NaN or infinite.
  std::int64_t next(const std::vector<std::int64_t>& tokens);

 private:
  // Returns the tokens that are passed to the model: the last tokens of the current document, at most `positions_`.
  std::span<const std::int64_t> window_of(const std::vector<std::int64_t>& tokens) const;
  // Returns the logits after the last token of the window. If `whole` is true, runs the model for all tokens, otherwise only
  // for the new token.
  at::Tensor logits_after(std::span<const std::int64_t> window, bool whole);

  Gpt& model_;
  std::int64_t positions_;
  c10::Device device_;
  TrainConfig::Precision precision_;
  Sampling sampling_;
  std::optional<std::int64_t> end_;
  at::Generator generator_;
  KvCache cache_;
  std::vector<std::int64_t> window_;  // the window of the last call, whose keys and values cache_ contains
};

}  // namespace ddprun::trainer
