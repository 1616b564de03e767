// The environment of a worker: the caller's, with torchrun's variables (overwriting stale ones), the channel for workers that
// speak it, and without our secrets. Pure; launcher/agent/round_workers.cpp calls it for each worker of a round.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/plan.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

// kGiven: to ddptrain, which needs it. kOffered: to a script or program, which may not even know of it.
enum class ChannelUse { kNone, kOffered, kGiven };

struct WorkerSettings {
  RankAssignment ranks;
  std::string master_addr;
  int master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::optional<int> generation{};  // for workers with a channel, on many machines: of their first group
  std::string run_id;
  std::string error_file{};  // empty when there are no logs, as torchrun's
  ChannelUse channel = ChannelUse::kNone;
  std::vector<WorkerPlace::Variable> only_device{};  // --virtual-local-rank: LOCAL_RANK is 0 and these are set
  std::vector<int> signals_to_handle{};              // the agent's, for TORCHELASTIC_SIGNALS_TO_HANDLE
  std::string node_address{};                        // for workers with a channel: where other nodes reach this one
  std::string port_range{};                          // LOW-HIGH, for the same on many machines; empty: any ports
  std::string chaos{};                               // --chaos, for workers with a channel; empty: none
  bool standby = false;                              // it has no rank yet: nothing says that it has
  std::string interface {};                          // --interface, for the libraries that the environment says nothing to
  RestartFacts facts{};                              // DDPRUN_RESTART_CAUSE and DDPRUN_OOM_COUNT, of a script
  std::string timer_file{};                          // TORCHELASTIC_TIMER_FILE; empty: as inherited
};

// `inherited` as NAME=value, order kept; of a name that comes twice the first counts, as getenv's.
std::vector<std::string> worker_environment(std::span<const std::string> inherited, const WorkerSettings& settings);

// This process' environment as a vector.
std::vector<std::string> environment_of_this_process();

}  // namespace ddprun
