// `ddptrain predict`: reads samples as lines of JSON, and writes the model's prediction for each sample as a line of JSON.
#pragma once

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Writes one answer per line, in the order of the input lines. An answer has the "id" of its input line. If a line is invalid,
// writes the answers of the lines before it, and throws UsageError with the number of the line.
void predict(const PredictOptions& options);

}  // namespace ddprun::trainer
