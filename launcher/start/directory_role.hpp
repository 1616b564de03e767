// Decides which agent leads if several agents of one job are given the same run directory. start_training.cpp and
// start_script.cpp call open_or_follow(), which calls role_in_directory() for the decision. One agent leads: it holds the lock
// and writes config and report. The others follow: they only add their logs.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "launcher/network/network_start.hpp"

namespace ddprun {

// The input of the decision.
struct DirectoryQuestion {
  using Lead = rendezvous::NodeShellSettings::Lead;
  std::optional<Lead> lead;         // whether this node leads the job at first; nullopt: the job has one machine
  bool has_run_dir = false;         // false only for a script
  bool another_holds_lock = false;  // another agent holds the directory's lock now
  bool opening_refused = false;     // this agent tried to open the directory as its leader, and was refused
};

enum class DirectoryRole {
  kLead,    // opens the directory as its leader
  kFollow,  // another agent of the job leads in the directory
  kRefuse,  // neither: the error from opening the directory stands
};

// The decision itself. Pure.
DirectoryRole role_in_directory(const DirectoryQuestion& question);

// Whether the decision depends on `another_holds_lock`. If not, the lock is not probed, since a probe holds it for a moment.
// Pure.
bool depends_on_lock(const DirectoryQuestion& question);

struct LeaderSteps {
  std::function<void()> check{};  // a UsageError from it is final; may be empty
  std::function<void()> open;     // a UsageError from it is final too, unless another agent has taken the directory meanwhile
};

// Runs the steps if this agent is to lead, and returns kLead if they succeed. Two agents of one command on one machine start at
// the same time, so the role is decided again if the directory could not be opened. Returns kFollow if another agent leads, and
// informs `network` that this node does not. Never returns kRefuse: it rethrows the UsageError instead.
DirectoryRole open_or_follow(const std::filesystem::path& run_dir, std::optional<NetworkStart>& network,
                             const LeaderSteps& steps);

}  // namespace ddprun
