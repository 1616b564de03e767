// The message for a run directory whose training is already complete. launcher/start/start_training.cpp prints it.
#pragma once

#include <string>

#include "common/run_directory/run_directory.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// "fashion-mnist is already done: 1,407 steps, checkpoint ..., test accuracy 90.41 % ..." with a final '\n'; with --json a JSON
// line.
std::string already_done(const Plan& plan, const RunState& state);

}  // namespace ddprun
