// `ddptrain generate`: continues a prompt with a saved model, on stdout.
#pragma once

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Prints each token when it is generated: as text for a text prompt, else as a number. With `json` prints all of them at the
// end. Throws UsageError.
void generate_text(const GenerateOptions& options);

}  // namespace ddprun::trainer
