// A worker program of the user's own, named by --worker or by the config's key "worker": found, and asked with --describe what
// it is. plan.cpp and `ddprun validate` do that before they read the rest of the config, whose section "task" has the program's
// keys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/own_worker/description.hpp"
#include "launcher/machine/detect.hpp"

namespace ddprun {

struct OwnWorker {
  std::filesystem::path program;  // absolute
  std::string source;             // who names it: "flag --worker"
  WorkerDescription description;
};

// Who names a program, by which word: {"./mytrain", "flag --worker"}.
struct NamedWorker {
  std::string name;
  std::string source;
};

// `by_option` is a path from `cwd`, or a name on PATH, and wins over the config's, which is an absolute path or "". Nothing
// where neither is given. Throws UsageError: no such program, one that can't be executed or can't describe itself, or that
// speaks another version of the worker channel.
std::optional<OwnWorker> find_own_worker(const std::optional<NamedWorker>& by_option, const std::string& by_config,
                                         const Machine& machine, const std::filesystem::path& cwd);

}  // namespace ddprun
