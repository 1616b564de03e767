// `ddprun --hosts a,b:4 train.json`: starts one agent on each host over ssh, shows their output on this console, and passes
// signals to them. main() calls it in place of a plan for this machine. hosts_state.hpp makes the decisions.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"

namespace ddprun {

// Returns the exit code of the job. Throws UsageError or TokenError before the start of an agent, and Error with
// ExitCode::kPeersMissing if a host cannot be reached. With --dry-run, it only prints the commands of the agents.
int run_on_hosts(const Arguments& arguments);

// For `ddprun status`, `stop` and `logs` with --hosts: replaces this process by an ssh client that runs ddprun with the
// arguments `words` on the first host. Throws UsageError if ssh cannot be started.
[[noreturn]] void run_on_first_host(const std::string& hosts, const std::vector<std::string>& words);

}  // namespace ddprun
