// The message when a run directory is asked to do what it has already done. launcher/start/start_training.cpp calls it.
#pragma once

#include <string>

#include "common/run_directory/run_directory.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// "fashion-mnist is already done: 1,407 steps, checkpoint ..., test accuracy 90.41 % ..." and '\n', or a JSON line with --json.
std::string already_done(const Plan& plan, const RunState& state);

}  // namespace ddprun
