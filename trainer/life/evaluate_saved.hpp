// `ddptrain eval`: evaluates a saved model with one worker.
#pragma once

#include <string>

#include "trainer/life/subject.hpp"
#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// Returns one line: "test loss 3.2825 on 1296 samples". With `json` the line is {"loss": ..., "samples": ...}, where NaN and
// infinity become null. Throws UsageError.
std::string evaluate_saved(const SavedModelOptions& options, const Subject& subject);

}  // namespace ddprun::trainer
