// Determines from the plan how this node finds the other nodes. The result states whether this node is the first coordinator,
// and contains the job's token and the settings of a coordinator. main() calls prepare_network() before anything is started.
// It resolves names, checks this machine's addresses and reads the token.
#pragma once

#include <optional>
#include <string>

#include "launcher/plan/plan.hpp"
#include "rendezvous/shell/node_shell.hpp"

namespace ddprun {

struct NetworkStart {
  rendezvous::NodeShellSettings shell;
  std::string token_file;  // the token's file, which a user can copy to other nodes; empty if the token came from DDPRUN_TOKEN
};

// `job` is the answer to nodes that run `ddprun join`. `variable` is the value of DDPRUN_TOKEN at the start. Throws UsageError
// or TokenError.
NetworkStart prepare_network(const Plan& plan, std::string job, std::optional<std::string> variable);

// Decides whether this node is the first coordinator. --node-rank and is_host decide it if they are given. Otherwise a node
// that owns the endpoint's address becomes the coordinator if the endpoint's port is free.
rendezvous::NodeShellSettings::Lead lead_of(const RendezvousPlan& plan);

}  // namespace ddprun
