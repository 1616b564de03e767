// Builds the message about a run directory whose training is already complete. launcher/launch/start_training.cpp prints it
// instead of starting workers.
#pragma once

#include <string>

#include "common/run_directory/run_directory.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Returns a text such as "fashion-mnist is already done: 1,407 steps, checkpoint ..., last evaluation: test ..." with a final
// newline. With --json it returns one JSON line.
std::string already_done(const Plan& plan, const RunState& state);

}  // namespace ddprun
