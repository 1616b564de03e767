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
#include "launcher/machine/numa_binding.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/plan/output_plan.hpp"
#include "launcher/plan/rendezvous_plan.hpp"
#include "launcher/verdict/hang_watch.hpp"
#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

// Where a value came from, for --dry-run: {"nproc_per_node", "2", "flag --nproc-per-node"}.
struct ValueSource {
  std::string name;
  std::string value;
  std::string source;
};

// The standard input of a script's workers.
enum class WorkersInput {
  kNothing,         // /dev/null
  kOurs,            // the launcher's, shared by all of them
  kTerminalIsKept,  // /dev/null, since ours is a terminal that they must not have (plan_input.hpp)
};

// Where on its machine a worker runs (plan_placement.hpp).
struct WorkerPlace {
  struct Variable {
    std::string name;
    std::string value;
    bool operator==(const Variable&) const = default;
  };
  std::vector<int> cpus;              // --numa-binding: the only ones it may run on; empty: not bound
  std::vector<Variable> only_device;  // --virtual-local-rank: then it is LOCAL_RANK 0, and these replace the caller's
};

struct Plan {
  enum class Kind { kTrain, kPython, kModule, kProgram };
  Kind kind = Kind::kTrain;
  std::string title;                  // what people call it: "fashion-mnist", "train.py"
  std::vector<std::string> command;   // a worker's argv; command[0] is the resolved executable. For kTrain: ddptrain --run-dir
                                      // DIR --resume HOW <run-dir>/config.json
  std::optional<TrainConfig> config;  // kTrain
  std::filesystem::path run_dir;      // absolute; kTrain always, others only with --run-dir
  // Absolute, of a script: the folder that --log-dir names, in which the run makes <run id>_<random>/attempt_<n>/<local rank>/.
  // Empty: under a new folder in $TMPDIR, torchelastic_<random>, made when something is written.
  std::filesystem::path log_dir;
  OutputPlan output;  // of a script
  enum class Resume { kAuto, kNever, kPath };
  Resume resume = Resume::kAuto;
  std::filesystem::path resume_from;  // kPath
  bool fresh = false;
  bool data_changed = false;  // the user knows that the data is another

  int nproc_per_node = 1;
  WorkersInput input = WorkersInput::kNothing;
  std::string device;           // kTrain, for people: "cpu", "cuda", "auto"
  bool worker_per_gpu = false;  // kTrain: there are as many workers as GPUs, because of them
  bool live_nccl = false;       // kTrain: --recovery live was asked for although the workers talk through NCCL
  std::string role = "default";
  std::filesystem::path token_file;  // --token-file, absolute; empty: looked for elsewhere
  std::string interface;             // --interface, for the workers' GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME; empty: none
  std::string run_id;                // TORCHELASTIC_RUN_ID
  RendezvousPlan rendezvous;         // of agents on many machines; with max_nodes 1 there is nobody to meet
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one, new in every round
  PortNeed master_port_need = PortNeed::kExactly;
  int max_restarts = 0;
  bool refill_by_progress = false;  // decision 1
  RestartRules restart_rules;       // of --restart-policy
  std::string restart_policy_text;  // that file's, for nodes that join; empty: none
  std::chrono::milliseconds shutdown_timeout{30000};
  std::chrono::milliseconds regroup_limit{0};  // kTrain: a lost worker is replaced beside the others within it; 0: never
  int standbys = 0;                            // processes that wait to replace a lost worker; only with a regroup_limit
  std::vector<int> signals_to_handle;
  HangLimits hang;
  std::string chaos;  // faults to rehearse (common/base/fault.hpp); kTrain only

  bool json = false;  // console speaks JSON lines
  int verbosity = 0;  // -1 quiet, 0, 1, 2
  bool dry_run = false;
  bool virtual_local_rank = false;  // LOCAL_RANK=0 everywhere, CUDA_VISIBLE_DEVICES names the one GPU of the worker
  Numa numa = Numa::kNone;
  std::vector<WorkerPlace> places;  // by local rank
  bool as_torchrun = false;         // started by the name torchrun: banner, defaults and exit code 1 as torchrun's
  std::vector<ValueSource> sources;
  std::vector<std::string> notes;     // said at -v: options without effect, and the like
  std::vector<std::string> warnings;  // said always: probably a mistake
};

struct Arguments;
struct Machine;

// Resolves all of it; reads the config and looks at files, starts and writes nothing. Throws UsageError. `environment` answers
// for PYTHON_EXEC and VIRTUAL_ENV; relative paths are relative to `cwd`.
Plan make_plan(const Arguments& arguments, const Machine& machine,
               const std::function<std::optional<std::string>(std::string_view)>& environment,
               const std::filesystem::path& cwd);

}  // namespace ddprun
