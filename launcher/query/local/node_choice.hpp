// Selects one node of a running job by the name that a user has given, for `ddprun stop --node`. The input is the status of
// the job's nodes (job_nodes.hpp). The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/query/local/job_nodes.hpp"

namespace ddprun {

struct ChosenNode {
  std::string host{};      // host name for messages, safe to print
  std::string name{};      // the node's name in ClusterAnswers::names
  std::int64_t agent = 0;  // the agent's pid on that machine
};

// `word` is a host name or a node rank. A host name matches with or without its domain. If several agents have this host name,
// only a rank selects one of them. Throws UsageError with the list of nodes if `word` does not select exactly one node that
// has answered.
ChosenNode choose_node(const ClusterAnswers& nodes, std::string_view word);

// Throws UsageError if fewer nodes than the minimum of --nnodes would remain after the node `leaving` has left. The whole job
// would then stop.
void refuse_too_few_nodes(const ClusterAnswers& nodes, const ChosenNode& leaving);

}  // namespace ddprun
