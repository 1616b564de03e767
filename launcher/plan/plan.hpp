// The complete plan of one `ddprun` invocation. Options, environment and defaults are resolved only here, before anything is
// started, so --dry-run can print everything. Values only.
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

// The source of a value, for --dry-run: {"nproc_per_node", "2", "flag --nproc-per-node"}.
struct ValueSource {
  std::string name;
  std::string value;
  std::string source;
};

// The standard input of a script's workers.
enum class WorkersInput {
  kNothing,         // /dev/null
  kOurs,            // the launcher's own; all workers share it
  kTerminalIsKept,  // /dev/null, since ours is a terminal that the workers must not read (plan_input.hpp)
};

// Where on its machine a worker runs (plan_placement.hpp).
struct WorkerPlace {
  struct Variable {
    std::string name;
    std::string value;
    bool operator==(const Variable&) const = default;
  };
  std::vector<int> cpus;  // --numa-binding: the CPUs on which the worker may run; empty: not bound
  // --virtual-local-rank: the worker gets LOCAL_RANK=0, and these variables replace inherited ones
  std::vector<Variable> only_device;
};

struct Plan {
  enum class Kind { kTrain, kPython, kModule, kProgram };
  Kind kind = Kind::kTrain;
  std::string title;                  // name of the job for people: "fashion-mnist", "train.py"
  std::vector<std::string> command;   // the argv of a worker; command[0] is the resolved executable. For kTrain: ddptrain
                                      // --run-dir DIR --resume HOW <run-dir>/config.json
  std::optional<TrainConfig> config;  // kTrain only
  std::optional<OwnWorker> worker;    // kTrain: the worker program that replaces ddptrain
  std::filesystem::path run_dir;      // absolute; kTrain always has one, other kinds only with --run-dir
  // For a script: the absolute path of the folder given by --log-dir. In it the run creates
  // <run id>_<random>/attempt_<n>/<local rank>/. Empty: a new folder in $TMPDIR, torchelastic_<random>, which is created at
  // the first write.
  std::filesystem::path log_dir;
  OutputPlan output;  // for a script only
  enum class Resume { kAuto, kNever, kPath };
  Resume resume = Resume::kAuto;
  std::filesystem::path resume_from;  // set if resume is kPath
  bool fresh = false;
  bool data_changed = false;  // --data-changed: the user confirms that the data set has changed on purpose

  int nproc_per_node = 1;
  WorkersInput input = WorkersInput::kNothing;
  std::string device;           // kTrain, for messages: "cpu", "cuda", "auto"
  bool worker_per_gpu = false;  // kTrain: there is one worker per GPU
  bool live_nccl = false;       // kTrain: --recovery live was given although the workers communicate through NCCL
  std::string role = "default";
  std::filesystem::path token_file;  // --token-file, absolute; empty: the default places are searched
  std::string interface;      // --interface: becomes the workers' GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME; empty: not given
  std::string run_id;         // TORCHELASTIC_RUN_ID
  RendezvousPlan rendezvous;  // for agents on many machines; unused if max_nodes is 1
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free port, and another one in each round
  PortNeed master_port_need = PortNeed::kExactly;
  bool agent_store = true;  // a ddprun process hosts a script's store at MASTER_PORT; false: rank 0 hosts it, or kTrain
  int max_restarts = 0;
  bool refill_by_progress = false;  // progress refills the restart budget (decision 1)
  RestartRules restart_rules;       // from the file of --restart-policy
  std::string restart_policy_text;  // the text of that file, sent to nodes that join; empty: none
  std::chrono::milliseconds shutdown_timeout{30000};
  std::chrono::milliseconds regroup_limit{
      0};  // time limit to replace a lost worker while the others keep running; 0: they never do
  // Number of processes that wait to replace lost workers: standbys of ddptrain, if regroup_limit is set, or spare interpreters
  // of a script.
  int standbys = 0;
  std::string preload;     // modules that the spare interpreters import, separated by commas
  std::string spare_hook;  // the folder with the Python hook that makes an interpreter wait
  std::vector<int> signals_to_handle;
  HangLimits hang;
  std::string chaos;  // faults to inject (common/base/fault.hpp); kTrain only

  bool json = false;           // the console writes JSON lines
  std::string on_failure;      // --on-failure, a shell command; empty: none
  std::string on_checkpoint;   // --on-checkpoint, a shell command; empty: none
  int threads_per_worker = 1;  // OMP_NUM_THREADS if there are several workers and it is not inherited
  int metrics_port = 0;        // --metrics-port; 0: not given
  int verbosity = 0;           // -1 quiet, 0, 1, 2
  bool dry_run = false;
  bool virtual_local_rank = false;  // LOCAL_RANK=0 for every worker; CUDA_VISIBLE_DEVICES names the worker's one GPU
  Numa numa = Numa::kNone;
  std::vector<WorkerPlace> places;  // by local rank
  bool as_torchrun = false;         // started under the name torchrun: uses torchrun's banner, defaults and exit code 1
  std::vector<ValueSource> sources;
  std::vector<std::string> notes;     // shown with -v, for example options without effect
  std::vector<std::string> warnings;  // always shown: probable mistakes
};

RestartLimits restart_limits(const Plan& plan);

struct Arguments;
struct Machine;

// Resolves everything: reads the config and inspects files, but writes nothing. It starts no process, with one exception: a
// custom worker program is run with --describe, since its own keys appear in the config. `environment` is queried for
// PYTHON_EXEC and VIRTUAL_ENV; relative paths are relative to `cwd`. Throws UsageError.
Plan make_plan(const Arguments& arguments, const Machine& machine,
               const std::function<std::optional<std::string>(std::string_view)>& environment,
               const std::filesystem::path& cwd);

}  // namespace ddprun
