// Queries all nodes of a running job through the agent on this machine. `status`, `top`, `stop`, `stacks` and `logs` use it.
// The calls block.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/commands/chosen_job.hpp"

namespace ddprun {

// Whether the job has several nodes and the request is not limited to this node.
bool asks_all_nodes(const RunningJob& job, const JobRequest& request);

struct NodesAnswers {
  std::vector<nlohmann::json> answers;  // objects, each with "host", sorted by node rank where they contain one
  // Names of the answering nodes, in the same order; a query may be sent to one node by its name.
  std::vector<std::string> names;
  // Number of nodes in the job now; 0: no answer, so there is no coordinator at the moment.
  int of = 0;
  bool heard = false;  // whether the agent itself has answered
  int silent() const { return std::max(0, of - static_cast<int>(answers.size())); }
};
// Sends the query (launcher/asked/node_asked.hpp) to all nodes of the job. Throws UsageError if the agent refuses it.
NodesAnswers ask_nodes(const RunningJob& job, const nlohmann::json& question,
                       std::chrono::seconds within = std::chrono::seconds(2));
// The query in the form that the agent expects, and the parser of its answer, for callers that use an OpenQuestion. Throws the
// same errors as ask_nodes().
std::string question_to_nodes(const nlohmann::json& question);
NodesAnswers nodes_answers_of(const RunningJob& job, const std::optional<std::string>& answer);

// Human-readable status of all nodes; of this node alone if no other node answers.
std::string status_of_all(const RunningJob& job, const NodesAnswers& nodes);

// A message about nodes that have not answered; empty if all have.
std::string about_silence(const NodesAnswers& nodes);

}  // namespace ddprun
