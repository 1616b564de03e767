// What a script's workers are. What the first positional argument is (decision 29): a train.json, a Python script or module, or
// a program; and the argv that starts a script, module or program. plan.cpp calls it. It looks at files and runs nothing.
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
  bool run_path = false;                // --run-path: the argument is a script, whatever it looks like
  CalledAs called_as = CalledAs::kDdprun;
  std::filesystem::path called_from;  // the folder in argv[0], where a link to ddprun is
};

// `.json` is a config unless -m, --no-python or --run-path say otherwise. The file's first bytes tell a program from a script;
// under the name torchrun everything that is no config is Python, as in torchrun.
Plan::Kind kind_of(const ProgramChoice& choice, const std::filesystem::path& cwd);

// The argv of a worker, except for kTrain; argv[0] is absolute. Throws UsageError when the script, the interpreter or the
// program is missing.
std::vector<std::string> command_of(Plan::Kind kind, const ProgramChoice& choice, const Machine& machine,
                                    const std::function<std::optional<std::string>(std::string_view)>& environment,
                                    const std::filesystem::path& cwd);

// Reads --standby and --preload into the plan of a script. Refuses what no spare interpreter could ever be used for. Where this
// machine has no means for spares, a warning says so, and workers start without.
void choose_spares(Plan& plan, const Settings& settings, const Machine& machine);

}  // namespace ddprun
