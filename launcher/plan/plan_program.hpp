// Determines the workers' program. Classifies the first positional argument (decision 29): a train.json, a Python script or
// module, or a program. Builds the argv that starts a script, module or program. plan.cpp calls it. It inspects files and runs
// nothing.
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

struct ProgramChoice {
  std::vector<std::string> positional;  // the program and its arguments; not empty
  bool module = false;                  // -m
  bool no_python = false;               // --no-python
  bool run_path = false;                // --run-path: the argument is a script, whatever its name or content
  CalledAs called_as = CalledAs::kDdprun;
  std::filesystem::path called_from;  // the folder in argv[0], which may be that of a link to ddprun
};

// A `.json` file is a config unless -m, --no-python or --run-path is given. The file's first bytes distinguish a program from a
// script. Under the name torchrun everything except a config is Python, as in torchrun.
Plan::Kind kind_of(const ProgramChoice& choice, const std::filesystem::path& cwd);

// The argv of a worker, except for kTrain; argv[0] is absolute. Throws UsageError if the script, the interpreter or the program
// is missing.
std::vector<std::string> command_of(Plan::Kind kind, const ProgramChoice& choice, const Machine& machine,
                                    const std::function<std::optional<std::string>(std::string_view)>& environment,
                                    const std::filesystem::path& cwd);

// Reads --standby and --preload into the plan of a script. Refuses combinations in which no spare interpreter could ever be
// used. If this machine cannot run spares, a warning is added, and the workers start without them.
void choose_spares(Plan& plan, const Settings& settings, const Machine& machine);

}  // namespace ddprun
