// What a saved model says of samples that are given one by one, as JSON. predict.cpp reads and writes the lines; one kind of
// sample is one class, pictures or texts.
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

  // Keeps a sample until the next answers(). Throws UsageError that says what was expected of it.
  virtual void take(const nlohmann::json& sample) = 0;
  // Of each sample that was taken, in their order; then there are none. Throws DivergedError where the model makes NaN of them.
  virtual std::vector<nlohmann::ordered_json> answers() = 0;
};

// Of which NaN is the likeliest, and so the answer.
void require_numbers(const at::Tensor& outputs);

// {"pixels": [...]}, 0 to 255, channel after channel and row after row, as many as the model's pictures have; the answer has
// "class", its "probability", and the "probabilities" of all classes. Reads the training pictures where the config does not
// give mean and std. Throws UsageError.
std::unique_ptr<Predictor> picture_predictor(const SavedModel& saved);

// {"text": "..."} or {"tokens": [...]}, at most block_size tokens; the answer has how many "tokens" they are, the mean "loss"
// of all but the first (null where there is one), and the likeliest "next_token" with its "probability". Throws UsageError.
std::unique_ptr<Predictor> text_predictor(const SavedModel& saved);

}  // namespace ddprun::trainer
