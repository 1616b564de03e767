// Predictions of a saved model for samples in JSON. There is one implementation for images, one for texts and one for tables.
// predict.cpp reads the samples and writes the answers.
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

  // Adds a sample to the next batch. Throws UsageError, which describes the expected format, if the sample is invalid.
  virtual void take(const nlohmann::json& sample) = 0;
  // Runs the model on the samples that take() has added since the last call, and returns one answer for each, in the same
  // order. Throws DivergedError if an output is NaN or infinite.
  virtual std::vector<nlohmann::ordered_json> answers() = 0;
};

// Throws DivergedError if an output is NaN or infinite. Without this check, argmax would return a NaN as the most likely class.
void require_numbers(const at::Tensor& outputs);

// Returns a predictor for images. A sample is {"pixels": [...]} with integers from 0 to 255, ordered by channel, then by row.
// There must be as many pixels as in an image of the model's training data. The answer has "class", its "probability", and the
// "probabilities" of all classes. If the config lacks mean and std, they are computed from the training images. Throws
// UsageError.
std::unique_ptr<Predictor> image_predictor(const SavedModel& saved);

// Returns a predictor for texts. A sample is {"text": "..."} or {"tokens": [...]}, with at most block_size tokens. The answer
// has the number of "tokens", the mean "loss" over all tokens except the first (null for a single token), and the most likely
// "next_token" with its "probability". Throws UsageError.
std::unique_ptr<Predictor> text_predictor(const SavedModel& saved);

// Returns a predictor for rows of a table. A sample is {"row": {"COLUMN": VALUE, ...}} with a value for each column that is an
// input: a string, a number, true, false, or null for a missing value. The answer has the "number" in the unit of the table; or
// the name of the "class", its "probability", and the "probabilities" of all classes by their names. Throws UsageError, also if
// the run directory has no columns.json.
std::unique_ptr<Predictor> table_predictor(const SavedModel& saved);

}  // namespace ddprun::trainer
