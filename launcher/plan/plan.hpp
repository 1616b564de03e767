// All that one `ddprun` invocation is going to do, decided before anything is started. Options, environment and defaults are
// resolved only here, so --dry-run can print everything. Values only.
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
#include "launcher/own_worker/own_worker.hpp"
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

// What a script's workers have as standard input.
enum class WorkersInput {
  kNothing,         // /dev/null
  kOurs,            // the launcher's; all workers share it
  kTerminalIsKept,  // /dev/null, since ours is a terminal that they must not read (plan_input.hpp)
};

// Where on its machine a worker runs (plan_placement.hpp).
struct WorkerPlace {
  struct Variable {
    std::string name;
    std::string value;
    bool operator==(const Variable&) const = default;
  };
  std::vector<int> cpus;              // --numa-binding: the only CPUs on which it may run; empty: not bound
  std::vector<Variable> only_device;  // --virtual-local-rank: then it is LOCAL_RANK 0, and these variables replace the caller's
};

struct Plan {
  enum class Kind { kTrain, kPython, kModule, kProgram };
  Kind kind = Kind::kTrain;
  std::string title;                  // what people call the job: "fashion-mnist", "train.py"
  std::vector<std::string> command;   // the argv of a worker; command[0] is the resolved executable. For kTrain: ddptrain
                                      // --run-dir DIR --resume HOW <run-dir>/config.json
  std::optional<TrainConfig> config;  // kTrain
  std::optional<OwnWorker> worker;    // kTrain: what trains in place of ddptrain
  std::filesystem::path run_dir;      // absolute; kTrain always has one, others only with --run-dir
  // For a script: the absolute path of the folder that --log-dir names, in which the run makes <run
  // id>_<random>/attempt_<n>/<local rank>/. Empty: a new folder in $TMPDIR, torchelastic_<random>, which is made when something
  // is written.
  std::filesystem::path log_dir;
  OutputPlan output;  // for a script
  enum class Resume { kAuto, kNever, kPath };
  Resume resume = Resume::kAuto;
  std::filesystem::path resume_from;  // kPath
  bool fresh = false;
  bool data_changed = false;  // the user says that another data set is intended

  int nproc_per_node = 1;
  WorkersInput input = WorkersInput::kNothing;
  std::string device;           // kTrain, for messages: "cpu", "cuda", "auto"
  bool worker_per_gpu = false;  // kTrain: the number of workers comes from the number of GPUs
  bool live_nccl = false;       // kTrain: --recovery live was given although the workers communicate through NCCL
  std::string role = "default";
  std::filesystem::path token_file;  // --token-file, absolute; empty: it is looked for elsewhere
  std::string interface;      // --interface: becomes the workers' GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME; empty: not given
  std::string run_id;         // TORCHELASTIC_RUN_ID
  RendezvousPlan rendezvous;  // for agents on many machines; unused when max_nodes is 1
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one, and another in each round
  PortNeed master_port_need = PortNeed::kExactly;
  bool agent_store = true;  // a script's store at MASTER_PORT is a process of ddprun's; false: rank 0 hosts it, or kTrain
  int max_restarts = 0;
  bool refill_by_progress = false;  // decision 1
  RestartRules restart_rules;       // from the file of --restart-policy
  std::string restart_policy_text;  // the text of that file, for nodes that join; empty: none
  std::chrono::milliseconds shutdown_timeout{30000};
  std::chrono::milliseconds regroup_limit{
      0};               // within this time a lost worker is replaced while the others stay, if they can; 0: never
  int standbys = 0;     // how many wait to replace lost workers: ddptrain's, with a regroup_limit, or a script's interpreters
  std::string preload;  // what a script's have imported, with commas
  std::string spare_hook;  // the folder of Python's that makes an interpreter wait
  std::vector<int> signals_to_handle;
  HangLimits hang;
  std::string chaos;  // faults to inject (common/base/fault.hpp); kTrain only

  bool json = false;           // the console writes JSON lines
  std::string on_failure;      // --on-failure, a command for the shell; empty: none
  std::string on_checkpoint;   // --on-checkpoint, a command for the shell; empty: none
  int threads_per_worker = 1;  // OMP_NUM_THREADS of several workers, if it is not inherited
  int metrics_port = 0;        // --metrics-port; 0: not given
  int verbosity = 0;           // -1 quiet, 0, 1, 2
  bool dry_run = false;
  bool virtual_local_rank = false;  // LOCAL_RANK=0 everywhere; CUDA_VISIBLE_DEVICES names the worker's one GPU
  Numa numa = Numa::kNone;
  std::vector<WorkerPlace> places;  // by local rank
  bool as_torchrun = false;         // started under the name torchrun: with torchrun's banner, defaults and exit code 1
  std::vector<ValueSource> sources;
  std::vector<std::string> notes;     // shown with -v: options without effect, and the like
  std::vector<std::string> warnings;  // always shown: probable mistakes
};

RestartLimits restart_limits(const Plan& plan);

struct Arguments;
struct Machine;

// Resolves everything: reads the config and looks at files, but writes nothing. It starts nothing but a worker program of the
// user's own, with --describe, since that has keys of its own in the config. `environment` is asked for PYTHON_EXEC and
// VIRTUAL_ENV; relative paths are relative to `cwd`. Throws UsageError.
Plan make_plan(const Arguments& arguments, const Machine& machine,
               const std::function<std::optional<std::string>(std::string_view)>& environment,
               const std::filesystem::path& cwd);

}  // namespace ddprun
