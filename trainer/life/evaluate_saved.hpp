// `ddptrain eval`: what an evaluation finds of a model that is saved, by one worker.
#pragma once

#include <string>

#include "trainer/life/subject.hpp"
#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

// A line: "test loss 3.2825 on 1296 samples", or with `json` {"loss": ..., "samples": ...}, where what is not finite is null.
// Throws UsageError.
std::string evaluate_saved(const SavedModelOptions& options, const Subject& subject);

}  // namespace ddprun::trainer
