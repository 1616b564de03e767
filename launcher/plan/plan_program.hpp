// Determines the workers' program and the directories of the job. The first positional argument is a train.json, a Python
// script, a module or a program (docs/internals/decisions/options/what-is-started.md). Except for a train.json, these functions
// also build the argv of a worker. plan.cpp calls them. They inspect files but start no process.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Returns the kind of the first positional argument. A name that ends in .json is a config, unless -m, --no-python or
// --run-path is given. For other names, the first bytes of the file show whether it is a program or a script. If ddprun was
// started under the name torchrun, everything except a config is Python, as in torchrun.
Plan::Kind kind_of(const Arguments& arguments, const std::filesystem::path& cwd);

// Returns the argv of a worker, with an absolute path in argv[0]. Do not call it for kTrain. Throws UsageError if the script,
// the interpreter or the program is missing.
std::vector<std::string> command_of(Plan::Kind kind, const Arguments& arguments, const Machine& machine,
                                    const Environment& environment, const std::filesystem::path& cwd);

// Reads --standby and --preload into the plan of a script. Throws UsageError if these options are combined with options that
// prevent any use of a spare interpreter. If spares are impossible on this machine, it adds a warning, and workers start
// without spares.
void choose_spares(Plan& plan, const Settings& settings, const Machine& machine);

// Returns `file` as an absolute path, without "." and ".." components and without a final slash.
std::filesystem::path absolute_in(const std::filesystem::path& cwd, const std::filesystem::path& file);

// Reads --run-dir, --log-dir, --fresh, --data-changed and --resume. Throws UsageError, for example if a script gets an option
// that needs a train.json: --fresh, --data-changed, or a --resume other than auto.
void choose_folders(Plan& plan, const Settings& settings, const std::filesystem::path& cwd);

}  // namespace ddprun
