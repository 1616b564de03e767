// Parses --hang-timeout: the longest time without progress of a worker. plan.cpp calls it; the plan passes the limits to the
// agent. Pure.
#pragma once

#include <string>

#include "launcher/options/options.hpp"
#include "launcher/verdict/hang_watch.hpp"

namespace ddprun {

enum class WorkerKind { kTrainer, kScript };

// The value is "auto" (the default for a train.json), "off" (the default for a script), seconds for everything except the
// start, PHASE=SECONDS, or a comma-separated list of these. A script accepts only seconds, since its output is the only sign of
// progress. Throws UsageError.
HangLimits hang_limits_of(const Setting* setting, WorkerKind workers);

// A text for people: "learned from the run", "60 s", "off".
std::string describe(const HangLimits& limits);

}  // namespace ddprun
