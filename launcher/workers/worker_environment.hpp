// Builds the environment of a worker from the caller's environment. It adds torchrun's variables, which replace inherited ones,
// and the worker channel. It removes ddprun's secrets. The code is pure; launcher/agent/worker_supervisor.cpp calls it for
// each worker of a round.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/plan.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

// kGiven is for ddptrain, which requires the channel. kOffered is for a script or program, which may ignore the channel.
enum class ChannelUse { kNone, kOffered, kGiven };

struct WorkerSettings {
  RankAssignment ranks;
  std::string master_addr;
  int master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  bool agent_store = false;         // TORCHELASTIC_USE_AGENT_STORE; true: the agent, and not rank 0, hosts the store
  std::optional<int> generation{};  // number of the first process group, for workers with a channel in a multi-node job
  std::string run_id;
  std::string error_file{};  // empty if there are no log files, as under torchrun
  ChannelUse channel = ChannelUse::kNone;
  // The inode of the worker's end of the channel; 0 if unknown. A worker uses it to check its descriptor: a wrapper such as
  // sudo closes descriptors, and another socket may get the same number.
  std::uint64_t channel_inode = 0;
  // Used with --virtual-local-rank: the device variables to set; LOCAL_RANK is then 0.
  std::vector<WorkerPlace::Variable> only_device{};
  std::vector<int> signals_to_handle{};  // signals that the agent handles, for TORCHELASTIC_SIGNALS_TO_HANDLE
  // The address at which other nodes reach this node, for workers with a channel.
  std::string node_address{};
  // The permitted ports as "LOW-HIGH", for workers with a channel in a multi-node job. If it is empty, all ports may be used.
  std::string port_range{};
  std::string chaos{};       // value of --chaos, for ddptrain; may be empty
  bool standby = false;      // a standby has no rank yet, so variables with ranks are left out
  int threads = 1;           // OMP_NUM_THREADS, if there are several workers and the caller did not set it
  std::string interface {};  // value of --interface; a GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME of the caller takes precedence
  RestartFacts facts{};      // scripts only: DDPRUN_RESTART_CAUSE and DDPRUN_OOM_COUNT
  std::string snapshots{};   // scripts only: path of the agent's memory for snapshots; may be empty
  std::string timer_file{};  // TORCHELASTIC_TIMER_FILE; if empty, an inherited value stays
};

// Returns the environment as NAME=value. `inherited` has the same form. If a name occurs twice in `inherited`, the first value
// is used, as with getenv().
std::vector<std::string> worker_environment(std::span<const std::string> inherited, const WorkerSettings& settings);

// Changes the environment of a script's worker into the environment of a spare interpreter. Python then runs sitecustomize.py
// in the folder `hook` at its start, and this file imports `modules`.
void make_spare(std::vector<std::string>& environment, const std::string& hook, const std::string& modules);
// Returns the command that starts a spare interpreter: a Python program with the worker's command as its arguments. Python runs
// the hook before this program. The hook waits, and later runs the worker's command. If Python skips the hook, the program only
// reports this and exits. It must not run the script, since no rank was assigned yet.
std::vector<std::string> spare_command(const std::vector<std::string>& workers);

// Returns true if `variable` (NAME=value) must not be passed to any child process: it is a secret, or it belongs to a single
// worker.
bool is_never_inherited(std::string_view variable);

// Returns the environment of this process as NAME=value.
std::vector<std::string> environment_of_this_process();

}  // namespace ddprun
