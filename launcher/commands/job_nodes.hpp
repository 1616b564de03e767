// A running job as all of its nodes tell it, asked through the agent on this machine. `status`, `top`, `stop`, `stacks` and
// `logs` use it. It blocks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/commands/chosen_job.hpp"

namespace ddprun {

// Whether the job is one of several nodes and more than this node is meant.
bool asks_all_nodes(const RunningJob& job, const JobRequest& request);

struct NodesAnswers {
  std::vector<nlohmann::json> answers;  // objects, each with "host", by node rank where they tell one
  std::vector<std::string> names;       // of the nodes, by which a question may be put to one of them; as many
  int of = 0;                           // the nodes that are here; 0: nobody answers, so there is no coordinator now
  bool heard = false;                   // the agent itself has answered
  int silent() const { return std::max(0, of - static_cast<int>(answers.size())); }
};
// Puts the question (launcher/asked/node_asked.hpp) to all nodes of the job. Throws UsageError when the agent refuses it.
NodesAnswers ask_nodes(const RunningJob& job, const nlohmann::json& question,
                       std::chrono::seconds within = std::chrono::seconds(2));
// The question as the agent takes it, and its answer, for who asks by an OpenQuestion. Throws as ask_nodes().
std::string question_to_nodes(const nlohmann::json& question);
NodesAnswers nodes_answers_of(const RunningJob& job, const std::optional<std::string>& answer);

// The status of all nodes for people; that of this node alone where nobody else answers.
std::string status_of_all(const RunningJob& job, const NodesAnswers& nodes);

// What to say of nodes that have not answered; empty when all have.
std::string about_silence(const NodesAnswers& nodes);

}  // namespace ddprun
