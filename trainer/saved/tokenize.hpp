// `ddptrain tokenize`: converts a text to a token file.
#pragma once

#include <string>

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Writes the token file atomically. Returns a line about the file for the user. Throws UsageError.
std::string tokenize(const TokenizeOptions& options);

}  // namespace ddprun::trainer
