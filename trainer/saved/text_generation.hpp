// `ddptrain generate`: a model that is saved continues a prompt, onto stdout.
#pragma once

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Prints each token as it comes: text where the prompt is text, else numbers; with `json` all at once, at the end. Throws
// UsageError.
void generate_text(const GenerateOptions& options);

}  // namespace ddprun::trainer
