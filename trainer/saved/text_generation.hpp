// `ddptrain generate`: continues a prompt with a saved model, and prints the text on stdout.
#pragma once

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Prints each token as soon as it is generated: as text for a text prompt, otherwise as a number. With `json`, prints all
// tokens at the end in one line of JSON. Throws UsageError.
void generate_text(const GenerateOptions& options);

}  // namespace ddprun::trainer
