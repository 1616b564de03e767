// Decides which agent leads if several agents of one job are given the same run directory. start_training.cpp and
// start_script.cpp call acquire_or_follow(). One agent leads: it holds the directory's lock and writes config and report. The
// other agents follow: they only add their logs.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "launcher/network/network_start.hpp"

namespace ddprun {

enum class DirectoryRole {
  kLead,    // opens the directory as the leading agent of the job
  kFollow,  // another agent of the job leads in the directory
};

enum class DirectoryLeader { kThisAgent, kAnotherAgent, kHolderOfLock };

// Returns which agent leads in the directory, as far as the settings determine this. `network` is nullopt if the job has one
// machine, and `run_dir` is empty only for a script without --run-dir. The code is pure: no I/O, no clock.
DirectoryLeader leader_by_settings(const std::optional<NetworkStart>& network, const std::filesystem::path& run_dir);

struct LeaderSteps {
  std::function<void()> check{};  // may be empty; if check() throws UsageError, the error is final
  // if open() throws UsageError, the error is final, unless another agent has opened the directory
  std::function<void()> open;
};

// Runs `steps` if this agent should lead, and returns kLead if they succeed. One command may start two agents on one machine
// at the same time. So the role is decided again if the directory could not be opened. Returns kFollow if another agent leads,
// and records in `network` that this node does not lead. Probes the lock only if the settings do not determine the leader
// (kHolderOfLock), since a probe takes the lock for a moment.
DirectoryRole acquire_or_follow(const std::filesystem::path& run_dir, std::optional<NetworkStart>& network,
                                const LeaderSteps& steps);

}  // namespace ddprun
