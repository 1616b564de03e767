#include "launcher/workers/worker_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "common/base/signal_name.hpp"
#include "launcher/guardian/spawn.hpp"

namespace ddprun {
namespace {

// A worker never inherits these variables. Some are secrets, which a worker might print. The others belong to another worker.
constexpr std::array<std::string_view, 10> kNeverInherited{
    "DDPRUN_TOKEN",         "DDPRUN_CHANNEL",   "DDPRUN_CHANNEL_INODE", "DDPRUN_NODE_ADDRESS", "DDPRUN_GENERATION",
    "DDPRUN_RESTART_CAUSE", "DDPRUN_OOM_COUNT", "DDPRUN_PORT_RANGE",    "DDPRUN_SNAPSHOTS",    "DDPRUN_PRELOAD"};

// A standby gets its rank later over the channel, so its environment lacks these variables.
constexpr std::array<std::string_view, 5> kRankVariables{"LOCAL_RANK", "RANK", "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT",
                                                         "TORCHELASTIC_ERROR_FILE"};

std::string_view variable_name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::string names_of(const std::vector<int>& signals) {
  std::string names;
  for (const int signal : signals) {
    const std::string_view name = signal_abbreviation(signal);
    if (!name.empty()) names += (names.empty() ? "SIG" : ",SIG") + std::string(name);
  }
  return names;
}

}  // namespace

std::vector<std::string> worker_environment(std::span<const std::string> inherited, const WorkerSettings& settings) {
  const auto inherited_value = [&](std::string_view name) -> std::optional<std::string> {
    for (const std::string_view variable : inherited) {
      if (variable.size() > name.size() && variable[name.size()] == '=' && variable.starts_with(name)) {
        return std::string(variable.substr(name.size() + 1));
      }
    }
    return std::nullopt;
  };

  const RankAssignment& ranks = settings.ranks;
  const auto number = [](int value) { return std::to_string(value); };
  std::vector<std::pair<std::string_view, std::string>> ours{
      {"LOCAL_RANK", number(settings.only_device.empty() ? ranks.local_rank : 0)},
      {"RANK", number(ranks.rank)},
      {"GROUP_RANK", number(ranks.group_rank)},
      {"ROLE_RANK", number(ranks.role_rank)},
      {"ROLE_NAME", ranks.role},
      {"LOCAL_WORLD_SIZE", number(ranks.local_world_size)},
      {"WORLD_SIZE", number(ranks.world_size)},
      {"GROUP_WORLD_SIZE", number(ranks.group_world_size)},
      {"ROLE_WORLD_SIZE", number(ranks.role_world_size)},
      {"MASTER_ADDR", settings.master_addr},
      {"MASTER_PORT", number(settings.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", number(settings.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", number(settings.max_restarts)},
      {"TORCHELASTIC_RUN_ID", settings.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", settings.agent_store ? "True" : "False"},
      {"TORCHELASTIC_ERROR_FILE", settings.error_file},
  };
  for (const WorkerPlace::Variable& device : settings.only_device) ours.emplace_back(device.name, device.value);
  // Workers get the agent's list of signals, since a worker may itself be a launcher. torchrun does the same.
  if (!settings.signals_to_handle.empty())
    ours.emplace_back("TORCHELASTIC_SIGNALS_TO_HANDLE", names_of(settings.signals_to_handle));
  if (!settings.timer_file.empty()) ours.emplace_back("TORCHELASTIC_TIMER_FILE", settings.timer_file);
  const bool train = settings.channel == ChannelUse::kGiven;
  if (train) {
    // By default, NCCL's watchdog ends the process after a failed or stuck collective. NCCL's monitor ends it if the watchdog
    // does not respond. Both are disabled for ddptrain: it handles a failed collective as an exception, and the agent detects
    // hangs.
    ours.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0");
    ours.emplace_back("TORCH_NCCL_ENABLE_MONITORING", "0");
  } else if (!inherited_value("TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
    ours.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  }
  if (!inherited_value("OMP_NUM_THREADS") && ranks.local_world_size > 1)
    ours.emplace_back("OMP_NUM_THREADS", number(settings.threads));
  for (const std::string_view variable : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    if (!settings.interface.empty() && !inherited_value(variable)) ours.emplace_back(variable, settings.interface);
  }
  const bool restarted = settings.channel != ChannelUse::kGiven && settings.restart_count > 0 && !settings.facts.cause.empty();
  if (restarted) {
    ours.emplace_back("DDPRUN_RESTART_CAUSE", settings.facts.cause);
    ours.emplace_back("DDPRUN_OOM_COUNT", number(settings.facts.out_of_memory));
  }
  // The worker's index is appended to the path. A script cannot use LOCAL_RANK instead, because the script may change it, and
  // --virtual-local-rank sets it to 0 in all workers.
  if (settings.channel == ChannelUse::kOffered && !settings.snapshots.empty())
    ours.emplace_back("DDPRUN_SNAPSHOTS", settings.snapshots + ":" + number(ranks.local_rank));
  if (settings.channel != ChannelUse::kNone) {
    ours.emplace_back("DDPRUN_CHANNEL", "fd:" + std::to_string(kWorkerChannelFd));
    if (settings.channel_inode != 0) ours.emplace_back("DDPRUN_CHANNEL_INODE", std::to_string(settings.channel_inode));
    // The ranks of a script use this number when they send their snapshots to other nodes. A rank without snapshot memory
    // needs the number too, since the other ranks wait for its answer.
    if (settings.generation) ours.emplace_back("DDPRUN_GENERATION", number(*settings.generation));
    if (!settings.node_address.empty()) ours.emplace_back("DDPRUN_NODE_ADDRESS", settings.node_address);
    if (!settings.port_range.empty()) ours.emplace_back("DDPRUN_PORT_RANGE", settings.port_range);
  }
  if (train) {
    if (!settings.chaos.empty()) ours.emplace_back("DDPTRAIN_CHAOS", settings.chaos);
    // If LibTorch is not at the path that was set at build time, the loader finds it in this folder.
    if (const std::string libtorch = inherited_value("LIBTORCH").value_or(""); !libtorch.empty()) {
      const std::string paths = inherited_value("LD_LIBRARY_PATH").value_or("");
      ours.emplace_back("LD_LIBRARY_PATH", libtorch + "/lib" + (paths.empty() ? "" : ":" + paths));
    }
  }

  std::vector<std::string_view> replaced(kNeverInherited.begin(), kNeverInherited.end());
  if (settings.standby) {
    const auto is_rank_variable = [](const auto& variable) {
      return std::find(kRankVariables.begin(), kRankVariables.end(), variable.first) != kRankVariables.end();
    };
    ours.erase(std::remove_if(ours.begin(), ours.end(), is_rank_variable), ours.end());
    replaced.insert(replaced.end(), kRankVariables.begin(), kRankVariables.end());
  }
  for (const auto& [name, value] : ours) replaced.push_back(name);
  std::sort(replaced.begin(), replaced.end());
  // Most variables can be skipped quickly, because no replaced variable starts with the same letter.
  std::array<bool, 256> first_letters{};
  for (const std::string_view name : replaced) first_letters[static_cast<unsigned char>(name.front())] = true;
  const auto is_replaced = [&](const std::string& variable) {
    return !variable.empty() && first_letters[static_cast<unsigned char>(variable.front())] &&
           std::binary_search(replaced.begin(), replaced.end(), variable_name_of(variable));
  };
  std::vector<std::string> environment;
  environment.reserve(inherited.size() + ours.size());
  for (const std::string& variable : inherited) {
    if (!is_replaced(variable)) environment.push_back(variable);
  }
  for (const auto& [name, value] : ours) {
    std::string& variable = environment.emplace_back();
    variable.reserve(name.size() + 1 + value.size());
    variable.append(name).append(1, '=').append(value);
  }
  return environment;
}

void make_spare(std::vector<std::string>& environment, const std::string& hook, const std::string& modules) {
  constexpr std::string_view kPath = "PYTHONPATH=";
  const auto path =
      std::find_if(environment.begin(), environment.end(), [&](const auto& one) { return one.starts_with(kPath); });
  if (path == environment.end()) {
    environment.push_back(std::string(kPath) + hook);
  } else {
    const bool empty = path->size() == kPath.size();
    path->insert(kPath.size(), empty ? hook : hook + ":");
    // If PYTHONPATH is set but empty, Python treats it as missing, but the spare must restore the empty variable for the
    // script. DDPRUN_PRELOAD_EMPTY_PATH reports the case to the spare.
    if (empty) environment.emplace_back("DDPRUN_PRELOAD_EMPTY_PATH=1");
  }
  environment.push_back("DDPRUN_PRELOAD=" + modules);
}

std::vector<std::string> spare_command(const std::vector<std::string>& workers) {
  static const std::string kNoopProgram = "import os; os.write(" + std::to_string(kWorkerChannelFd) +
                                          ", b'unfit\\nthis Python does not run the sitecustomize.py in " +
                                          "PYTHONPATH: it is isolated (-I), or another sitecustomize comes first')";
  std::vector<std::string> command{workers.at(0), "-u", "-c", kNoopProgram};
  command.insert(command.end(), workers.begin(), workers.end());
  return command;
}

bool is_never_inherited(std::string_view variable) {
  return std::find(kNeverInherited.begin(), kNeverInherited.end(), variable_name_of(variable)) != kNeverInherited.end();
}

std::vector<std::string> environment_of_this_process() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

}  // namespace ddprun
