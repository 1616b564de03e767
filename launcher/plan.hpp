// Everything one `ddprun` invocation is going to do, decided before anything is started: options, environment and defaults are
// resolved here and nowhere else, so --dry-run can print the whole of it. Values only.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

// Where a value came from, for --dry-run: {"nproc_per_node", "2", "flag --nproc-per-node"}.
struct ValueSource {
  std::string name;
  std::string value;
  std::string source;
};

struct Plan {
  enum class Kind { kTrain, kPython, kModule, kProgram };
  Kind kind = Kind::kTrain;
  std::string title;                  // what people call it: "fashion-mnist", "train.py"
  std::vector<std::string> command;   // a worker's argv; command[0] is the resolved executable. For kTrain: ddptrain --run-dir
                                      // DIR --resume HOW <run-dir>/config.json
  std::optional<TrainConfig> config;  // kTrain
  std::filesystem::path run_dir;      // absolute; kTrain always, others only with --run-dir
  std::filesystem::path log_dir;      // absolute, of a script; empty: its output is not kept
  enum class Resume { kAuto, kNever, kPath };
  Resume resume = Resume::kAuto;
  std::filesystem::path resume_from;  // kPath
  bool fresh = false;

  int nproc_per_node = 1;
  std::string device;  // kTrain, for people: "cpu", "cuda", "auto"
  std::string role = "default";
  std::string run_id;  // TORCHELASTIC_RUN_ID
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one, new in every round
  int max_restarts = 0;
  bool refill_by_progress = false;  // DECISIONS.md 1
  std::chrono::milliseconds shutdown_timeout{30000};
  std::vector<int> signals_to_handle;

  bool json = false;  // console speaks JSON lines
  int verbosity = 0;  // -1 quiet, 0, 1, 2
  bool dry_run = false;
  std::vector<ValueSource> sources;
  std::vector<std::string> notes;  // said at -v: options without effect, and the like
};

struct Arguments;
struct Machine;

// Resolves all of it; reads the config and looks at files, starts and writes nothing. Throws UsageError. `environment` answers
// for PYTHON_EXEC and VIRTUAL_ENV; relative paths are relative to `cwd`.
Plan make_plan(const Arguments& arguments, const Machine& machine,
               const std::function<std::optional<std::string>(std::string_view)>& environment,
               const std::filesystem::path& cwd);

}  // namespace ddprun
