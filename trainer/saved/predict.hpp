// `ddptrain predict`: reads lines of JSON and writes one line of JSON for each.
#pragma once

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Writes the answers in the order of the lines and copies their "id". At a bad line, answers the lines before it and throws
// UsageError with the line.
void predict(const PredictOptions& options);

}  // namespace ddprun::trainer
