// The environment of a worker: the caller's, with torchrun's variables (which replace stale ones), the channel for workers that
// use it, and without our secrets. Pure; launcher/agent/round_workers.cpp calls it for each worker of a round.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/plan.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

// kGiven: for ddptrain, which needs it. kOffered: for a script or program, which may not know of it.
enum class ChannelUse { kNone, kOffered, kGiven };

struct WorkerSettings {
  RankAssignment ranks;
  std::string master_addr;
  int master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  bool agent_store = false;         // TORCHELASTIC_USE_AGENT_STORE: at MASTER_PORT is a store already, and rank 0 hosts none
  std::optional<int> generation{};  // of the first group, for workers with a channel on many machines
  std::string run_id;
  std::string error_file{};  // empty without logs, as in torchrun
  ChannelUse channel = ChannelUse::kNone;
  // Inode of the worker's end of the channel: behind a wrapper that closes descriptors (sudo), another socket may have its
  // number. 0: not known.
  std::uint64_t channel_inode = 0;
  std::vector<WorkerPlace::Variable> only_device{};  // with --virtual-local-rank: these are set, and LOCAL_RANK is 0
  std::vector<int> signals_to_handle{};              // by the agent: TORCHELASTIC_SIGNALS_TO_HANDLE
  std::string node_address{};                        // for workers with a channel: where other nodes reach this one
  std::string port_range{};                          // LOW-HIGH, for workers with a channel on many machines; empty: any ports
  std::string chaos{};                               // --chaos, for workers with a channel; empty: none
  bool standby = false;                              // it has no rank yet, so no variable names one
  int threads = 1;                                   // OMP_NUM_THREADS of each of several workers, if it is not inherited
  std::string interface {};                          // --interface, for libraries for which the environment has none
  RestartFacts facts{};                              // for a script: DDPRUN_RESTART_CAUSE and DDPRUN_OOM_COUNT
  std::string snapshots{};                           // for a script: the path of the agent's memory for them; empty: none
  std::string timer_file{};                          // TORCHELASTIC_TIMER_FILE; empty: as inherited
};

// `inherited` has NAME=value in order. If a name comes twice, the first one counts, as for getenv.
std::vector<std::string> worker_environment(std::span<const std::string> inherited, const WorkerSettings& settings);

// Makes a script's environment that of a spare interpreter: Python runs the file in the folder `hook`, which imports the
// modules.
void make_spare(std::vector<std::string>& environment, const std::string& hook, const std::string& modules);
// The command by which a spare is started: a program that does nothing, and the worker's command as its arguments. Python runs
// the hook first, and that starts the worker's command. A Python that does not run it must not run the script, as it would be
// a worker that nobody has started.
std::vector<std::string> spare_command(const std::vector<std::string>& workers);

// Whether no process that we start may have this NAME=value: a secret, or what is one worker's own.
bool is_never_inherited(std::string_view variable);

// This process' environment as a vector.
std::vector<std::string> environment_of_this_process();

}  // namespace ddprun
