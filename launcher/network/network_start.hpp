// Finds out, from the plan, how this node meets the others: whether it leads first, the job's token, and what a coordinator
// must know. main() calls it before anything is started. It resolves names, looks at this machine's addresses and reads the
// token.
#pragma once

#include <optional>
#include <string>

#include "launcher/plan/plan.hpp"
#include "rendezvous/shell/node_shell.hpp"

namespace ddprun {

struct NetworkStart {
  rendezvous::NodeShellSettings shell;
  std::string token_file;  // where a user can copy it from; empty when it came from DDPRUN_TOKEN
};

// `job` is what `ddprun join` gets. `variable` is the value that DDPRUN_TOKEN had. Throws UsageError or TokenError.
NetworkStart prepare_network(const Plan& plan, std::string job, std::optional<std::string> variable);

// Whether this node leads first: --node-rank 0, is_host, or it owns the address of the endpoint.
rendezvous::NodeShellSettings::Lead lead_of(const RendezvousPlan& plan);

}  // namespace ddprun
