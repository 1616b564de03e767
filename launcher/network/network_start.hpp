// Determines from the plan how this node meets the others: whether it leads first, the job's token, and the settings of a
// coordinator. main() calls it before anything is started. It resolves names, checks this machine's addresses and reads the
// token.
#pragma once

#include <optional>
#include <string>

#include "launcher/plan/plan.hpp"
#include "rendezvous/shell/node_shell.hpp"

namespace ddprun {

struct NetworkStart {
  rendezvous::NodeShellSettings shell;
  std::string token_file;  // file from which a user can copy the token; empty if it came from DDPRUN_TOKEN
};

// `job` is the answer for `ddprun join`. `variable` is the value that DDPRUN_TOKEN had. Throws UsageError or TokenError.
NetworkStart prepare_network(const Plan& plan, std::string job, std::optional<std::string> variable);

// Whether this node leads first: with --node-rank 0 or is_host, or if it owns the address of the endpoint.
rendezvous::NodeShellSettings::Lead lead_of(const RendezvousPlan& plan);

}  // namespace ddprun
