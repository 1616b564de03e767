// What --hang-timeout means: how long a worker may be without progress. plan.cpp calls it and gives the limits to the agent in
// the plan. Pure.
#pragma once

#include <string>

#include "launcher/options/options.hpp"
#include "launcher/verdict/hang_watch.hpp"

namespace ddprun {

enum class Workers { kTrainer, kScript };

// "auto" (the default of a train.json), "off" (that of a script), seconds for everything but the start, PHASE=SECONDS, and
// lists of these with commas. A script has seconds only: its output is all that is seen of it. Throws UsageError.
HangLimits hang_limits_of(const Setting* setting, Workers workers);

// For people: "learned from the run", "60 s", "off".
std::string describe(const HangLimits& limits);

}  // namespace ddprun
