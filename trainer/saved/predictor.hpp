// Predictions of a saved model for single samples in JSON. predict.cpp reads and writes the lines. Each kind of sample, image
// or text, has its own class.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/saved/saved_model.hpp"

namespace ddprun::trainer {

class Predictor {
 public:
  Predictor() = default;
  virtual ~Predictor() = default;
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  // Keeps a sample until the next answers(). Throws UsageError with the expected format.
  virtual void take(const nlohmann::json& sample) = 0;
  // Answers for the samples since the last call, in order; then forgets them. Throws DivergedError if the model computes NaN
  // for them.
  virtual std::vector<nlohmann::ordered_json> answers() = 0;
};

// Throws for NaN: argmax would choose it as the likeliest.
void require_numbers(const at::Tensor& outputs);

// {"pixels": [...]}, values 0 to 255, by channel, then by row, as many as an image of the model has. The answer has "class",
// its "probability", and the "probabilities" of all classes. Reads the training images if the config lacks mean and std. Throws
// UsageError.
std::unique_ptr<Predictor> picture_predictor(const SavedModel& saved);

// {"text": "..."} or {"tokens": [...]}, at most block_size tokens. The answer has the number of "tokens", the mean "loss" of
// all but the first (null for a single token), and the likeliest "next_token" with its "probability". Throws UsageError.
std::unique_ptr<Predictor> text_predictor(const SavedModel& saved);

}  // namespace ddprun::trainer
