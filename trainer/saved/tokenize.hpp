// `ddptrain tokenize`: converts a text to a token file.
#pragma once

#include <string>

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Writes the file atomically. Returns a line for the user about it. Throws UsageError.
std::string tokenize(const TokenizeOptions& options);

}  // namespace ddprun::trainer
