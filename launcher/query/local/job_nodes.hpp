// Queries all nodes of a running job through the agent on this machine. `status`, `top`, `stop`, `stacks`, `logs` and `report
// --follow` use it. The calls block.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/query/local/control_client.hpp"

namespace ddprun {

struct ClusterAnswers {
  std::vector<nlohmann::json> answers;  // JSON objects, each with "host"; answers that contain a node rank are sorted by it
  // Names of the nodes in `answers`, in the same order. A query can be sent to one node by its name.
  std::vector<std::string> names;
  // Number of nodes in the job; 0 if no node answered because the job had no coordinator.
  int of = 0;
  bool agent_answered = false;  // true if the agent on this machine has answered
  int silent() const { return std::max(0, of - static_cast<int>(answers.size())); }
};
// Sends the query (launcher/query/cluster/node_query_handler.hpp) to all nodes of the job. Throws UsageError if the agent
// refuses it.
ClusterAnswers query_nodes(const RunningJob& job, const nlohmann::json& question,
                           std::chrono::seconds within = std::chrono::seconds(2));
// These two functions encode a query and parse its answer, for callers that send the query with a PendingQuery. They throw the
// same errors as query_nodes().
std::string nodes_query(const nlohmann::json& question);
ClusterAnswers parse_cluster_answers(const RunningJob& job, const std::optional<std::string>& answer);

// Returns a message about the nodes that have not answered. The message is empty if all nodes have answered.
std::string missing_nodes_message(const ClusterAnswers& nodes);

}  // namespace ddprun
