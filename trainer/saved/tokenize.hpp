// `ddptrain tokenize`: a text as a token file.
#pragma once

#include <string>

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Atomically. Returns a line that says what was written. Throws UsageError.
std::string tokenize(const TokenizeOptions& options);

}  // namespace ddprun::trainer
