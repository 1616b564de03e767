// Chooses how the launcher handles failures and stops workers: restarts, signals, time limits, and the user's shell commands.
// plan.cpp calls these functions.
#pragma once

#include <filesystem>
#include <string>

#include "launcher/hang/hang_watch.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

enum class WorkerKind { kTrainer, kScript };

// Parses --hang-timeout: "auto" (the default with a train.json), "off" (the default for a script), or a list of SECONDS and
// PHASE=SECONDS, separated by commas. PHASE is start, step, evaluate, save or end. SECONDS without a phase applies to all
// phases except start. For a script only "off" and SECONDS are valid, since its output is the only sign of progress. Throws
// UsageError.
HangLimits hang_limits_of(const Setting* setting, WorkerKind workers);

// Returns the limits as text for messages: "learned from the run", "60 s", "off".
std::string describe(const HangLimits& limits);

// Reads --max-restarts and --restart-policy. Throws UsageError.
void choose_restarts(Plan& plan, const Settings& settings, const std::filesystem::path& cwd);

// Reads --shutdown-timeout, --signals-to-handle, --hang-timeout, --chaos, --on-failure, --on-checkpoint and --metrics-port.
// Throws UsageError.
void choose_stopping(Plan& plan, const Settings& settings);

}  // namespace ddprun
