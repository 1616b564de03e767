// From a plan to how this node meets the others: whether it leads first, the job's token, and what a coordinator must know.
// Called by main() before anything is started; looks at names and addresses and reads the token.
#pragma once

#include <optional>
#include <string>

#include "launcher/plan/plan.hpp"
#include "rendezvous/shell/node_shell.hpp"

namespace ddprun {

struct NetworkStart {
  rendezvous::NodeShellSettings shell;
  std::string token_file;  // where it can be copied from; empty when it came from DDPRUN_TOKEN
};

// `job`: what `ddprun join` gets. `variable`: DDPRUN_TOKEN, as it was. Throws UsageError, TokenError.
NetworkStart prepare_network(const Plan& plan, std::string job, std::optional<std::string> variable);

// Whether this node would coordinate: --node-rank 0, is_host, or the owner of the endpoint.
rendezvous::NodeShellSettings::Lead lead_of(const RendezvousPlan& plan);

}  // namespace ddprun
