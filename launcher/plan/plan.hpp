// The complete plan of one `ddprun` command. All options, environment variables and defaults are resolved before ddprun starts
// any process, so --dry-run can print the whole plan. This header only defines values.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/train_config.hpp"
#include "launcher/custom_worker/custom_worker.hpp"
#include "launcher/hang/hang_watch.hpp"
#include "launcher/machine/numa_binding.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/output_plan.hpp"
#include "launcher/plan/rendezvous_plan.hpp"
#include "launcher/restart_policy/restart_policy.hpp"

namespace ddprun {

// A resolved value and its source, as --dry-run prints them, such as {"nproc_per_node", "2", "flag --nproc-per-node"}.
struct ValueSource {
  std::string name;
  std::string value;
  std::string source;
};

// The standard input of a script's workers.
enum class WorkersInput {
  kNothing,         // /dev/null
  kOurs,            // ddprun's own standard input, which all workers share
  kTerminalIsKept,  // /dev/null: ddprun's standard input is a terminal that these workers must not read (plan_input.hpp)
};

// The CPUs and the GPU of one worker (plan_placement.hpp).
struct WorkerPlace {
  struct Variable {
    std::string name;
    std::string value;
    bool operator==(const Variable&) const = default;
  };
  std::vector<int> cpus;  // --numa-binding: CPUs on which the worker may run; empty if it may use all
  // --virtual-local-rank: variables that make only one GPU visible to the worker. They replace inherited variables, and
  // LOCAL_RANK is 0.
  std::vector<Variable> only_device;
};

struct Plan {
  enum class Kind { kTrain, kPython, kModule, kProgram };
  Kind kind = Kind::kTrain;
  std::string title;  // name of the job in messages, such as "fashion-mnist" or "train.py"
  // argv of a worker; command[0] is the resolved executable. For kTrain: ddptrain --run-dir DIR --resume HOW
  // <run-dir>/config.json
  std::vector<std::string> command;
  std::optional<TrainConfig> config;   // kTrain only
  std::optional<CustomWorker> worker;  // kTrain: a user's worker program that replaces ddptrain
  std::filesystem::path run_dir;       // absolute path; always set for kTrain, otherwise only with --run-dir
  // Absolute path from --log-dir; not used for kTrain. The logs are in <run id>_<random>/attempt_<n>/<local rank>/ below it. If
  // empty, ddprun creates $TMPDIR/torchelastic_<random> when it first writes a log file.
  std::filesystem::path log_dir;
  OutputPlan output;  // unused for kTrain
  enum class Resume { kAuto, kNever, kPath };
  Resume resume = Resume::kAuto;
  std::filesystem::path resume_from;  // the checkpoint's path; set if resume is kPath
  bool fresh = false;
  bool data_changed = false;  // --data-changed: the user confirms that the data set was changed on purpose

  int nproc_per_node = 1;
  WorkersInput input = WorkersInput::kNothing;
  std::string device;           // kTrain: "cpu", "cuda" or "auto", as chosen by the config and the visible GPUs
  bool worker_per_gpu = false;  // kTrain: each worker has its own GPU
  bool live_nccl = false;       // kTrain: the user has requested --recovery live although the workers communicate through NCCL
  std::string role = "default";
  std::filesystem::path token_file;  // --token-file, as an absolute path; if it is empty, the default locations are searched
  std::string interface;  // --interface: value of the workers' GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME; empty if not given
  std::string run_id;     // TORCHELASTIC_RUN_ID
  RendezvousPlan rendezvous;  // settings of a multi-node job; not used if max_nodes is 1
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: each round (one start of all workers) chooses a free port
  PortNeed master_port_need = PortNeed::kExactly;
  // True: ddprun hosts the store of scripts at MASTER_PORT. False: rank 0 hosts it, or the workers run ddptrain.
  bool agent_store = true;
  int max_restarts = 0;
  bool refill_by_progress = false;  // true: training progress refills the restart budget
  RestartRules restart_rules;       // rules from the file that --restart-policy names
  // text of the --restart-policy file, which is sent to nodes that join the job; empty if not given
  std::string restart_policy_text;
  std::chrono::milliseconds shutdown_timeout{30000};
  // Time limit for replacing a lost worker while the other workers keep running. 0: all workers restart instead.
  std::chrono::milliseconds regroup_limit{0};
  // Number of processes that wait to replace lost workers. For kTrain these are standbys of ddptrain, which need regroup_limit
  // > 0. For scripts they are spare interpreters.
  int standbys = 0;
  std::string preload;     // names of modules that spare interpreters import, separated by commas
  std::string spare_hook;  // directory of the Python hook with which a spare interpreter waits until it becomes a worker
  std::vector<int> signals_to_handle;
  HangLimits hang;
  std::string chaos;  // kTrain: faults that workers must inject, for tests (common/base/fault_injection.hpp)

  bool json = false;          // --json: the console prints JSON lines
  std::string on_failure;     // --on-failure: a shell command; empty if not given
  std::string on_checkpoint;  // --on-checkpoint: a shell command; empty if not given
  // OMP_NUM_THREADS of each worker; used if there are several workers and the variable is not inherited
  int threads_per_worker = 1;
  int metrics_port = 0;  // port of --metrics-port; 0: metrics are not served
  int verbosity = 0;     // -1 quiet, 0, 1, 2
  bool dry_run = false;
  bool preflight = false;           // --preflight: the job is not started if the doctor finds an error
  bool virtual_local_rank = false;  // true: every worker gets LOCAL_RANK=0, and CUDA_VISIBLE_DEVICES names its only GPU
  Numa numa = Numa::kNone;
  std::vector<WorkerPlace> places;  // by local rank
  // true: ddprun was started under the name torchrun, so torchrun's banner, defaults and exit codes apply
  bool as_torchrun = false;
  std::vector<ValueSource> sources;
  std::vector<std::string> notes;     // shown with -v, for example "option has no effect"
  std::vector<std::string> warnings;  // probable mistakes, which are always shown

  bool trains() const { return kind == Kind::kTrain; }
  // Appends an entry to `sources`.
  void record(std::string name, std::string value, std::string source);
  // Appends an option to `sources`. The option "max-restarts" is recorded under the name max_restarts.
  void record(std::string_view option, const Setting& setting);
};

const char* name_of(Plan::Kind kind);  // "train", "python", "module", "program"

RestartLimits restart_limits(const Plan& plan);

struct Machine;

// Resolves all options. It reads the config and inspects files, but writes no file. It starts only one kind of process: a
// user's worker program with --describe, which lists the config keys that the program adds. `environment` returns the values of
// environment variables. Relative paths are relative to `cwd`. Throws UsageError.
Plan make_plan(const Arguments& arguments, const Machine& machine, const Environment& environment,
               const std::filesystem::path& cwd);

}  // namespace ddprun
