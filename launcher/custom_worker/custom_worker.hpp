// Finds a custom worker program, which is named by --worker or by the config's key "worker". Runs it with --describe to get
// its description. plan.cpp and `ddprun validate` do that before they read the rest of the config. The program defines the
// keys of the section "task".
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/custom_worker/description.hpp"
#include "launcher/machine/detect.hpp"

namespace ddprun {

struct CustomWorker {
  std::filesystem::path program;  // an absolute path
  std::string source;             // the option or key that names the program, such as "flag --worker"
  WorkerDescription description;
};

// The program's name, and the option or key that contains it: {"./mytrain", "flag --worker"}.
struct NamedWorker {
  std::string name;
  std::string source;
};

// Finds the program and runs it to get its description. `by_option` is a path relative to `cwd`, or a name on PATH. It takes
// precedence over the config's program, which is an absolute path or "". Returns nullopt if neither is given. Throws UsageError
// if the program does not exist, can't be executed, can't describe itself, or uses a different version of the worker channel.
std::optional<CustomWorker> find_custom_worker(const std::optional<NamedWorker>& by_option, const std::string& by_config,
                                               const Machine& machine, const std::filesystem::path& cwd);

}  // namespace ddprun
