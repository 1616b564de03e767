// The environment of a worker: the caller's environment with torchrun's variables (which replace stale ones) and the worker
// channel, but without our secrets. Pure; launcher/agent/round_workers.cpp calls it for each worker of a round.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/plan.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

// kGiven: for ddptrain, which requires it. kOffered: for a script or program, which may not use it.
enum class ChannelUse { kNone, kOffered, kGiven };

struct WorkerSettings {
  RankAssignment ranks;
  std::string master_addr;
  int master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  bool agent_store = false;         // TORCHELASTIC_USE_AGENT_STORE: a store already runs at MASTER_PORT, so rank 0 starts none
  std::optional<int> generation{};  // number of the first group, for workers with a channel in a multi-node job
  std::string run_id;
  std::string error_file{};  // empty without logs, as under torchrun
  ChannelUse channel = ChannelUse::kNone;
  // Inode of the worker's end of the channel. Behind a wrapper that closes descriptors (sudo), the descriptor number may refer
  // to another socket. 0: unknown.
  std::uint64_t channel_inode = 0;
  std::vector<WorkerPlace::Variable> only_device{};  // with --virtual-local-rank: these variables are set, and LOCAL_RANK is 0
  std::vector<int> signals_to_handle{};              // signals that the agent handles: TORCHELASTIC_SIGNALS_TO_HANDLE
  // For workers with a channel: the address at which other nodes reach this one.
  std::string node_address{};
  // LOW-HIGH, for workers with a channel in a multi-node job; empty: any ports
  std::string port_range{};
  std::string chaos{};       // --chaos, for workers with a channel; empty: none
  bool standby = false;      // a standby has no rank yet, so the variables of a rank are left out
  int threads = 1;           // OMP_NUM_THREADS if there are several workers and it is not inherited
  std::string interface {};  // --interface, for libraries whose own variable is not in the environment
  RestartFacts facts{};      // for a script: DDPRUN_RESTART_CAUSE and DDPRUN_OOM_COUNT
  std::string snapshots{};   // for a script: the path of the agent's memory for snapshots; empty: none
  std::string timer_file{};  // TORCHELASTIC_TIMER_FILE; empty: as inherited
};

// `inherited` has NAME=value in order. If a name occurs twice, the first one counts, as for getenv.
std::vector<std::string> worker_environment(std::span<const std::string> inherited, const WorkerSettings& settings);

// Changes a script's environment into that of a spare interpreter. Python then runs the file in the folder `hook`, which
// imports the modules.
void make_spare(std::vector<std::string>& environment, const std::string& hook, const std::string& modules);
// The command that starts a spare: a Python program without effect, with the worker's command as its arguments. Python runs the
// hook first, and the hook starts the worker's command later. A Python that skips the hook must not run the script, since it
// would be a worker that was never started.
std::vector<std::string> spare_command(const std::vector<std::string>& workers);

// Whether this NAME=value must not be passed to any child process: it is a secret, or belongs to a single worker.
bool is_never_inherited(std::string_view variable);

// This process' environment as a vector.
std::vector<std::string> environment_of_this_process();

}  // namespace ddprun
