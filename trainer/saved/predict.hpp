// `ddptrain predict`: a line of JSON for each line of JSON.
#pragma once

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Answers are written in the order of the lines; an "id" is passed on. Lines before a bad one are answered. Throws UsageError
// that names the line.
void predict(const PredictOptions& options);

}  // namespace ddprun::trainer
