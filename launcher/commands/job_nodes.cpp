// Implementation of job_nodes.hpp.
#include "launcher/commands/job_nodes.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/control/control_socket.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

int rank_of(const json& answer) {
  const auto found = answer.find("node_rank");
  return found != answer.end() && found->is_number_integer() ? found->get<int>() : -1;
}

}  // namespace

bool asks_all_nodes(const RunningJob& job, const JobRequest& request) {
  return !request.has("--here") && job.status.is_object() && job.status.value("several_nodes", false);
}

NodesAnswers ask_nodes(const RunningJob& job, const json& question, std::chrono::seconds within) {
  NodesAnswers nodes;
  const auto text = ask_job(job.socket, kAskNodes + question.dump(), within);
  if (!text) return nodes;
  const json answer = json::parse(*text, nullptr, false);
  if (!answer.is_object()) return nodes;
  nodes.heard = true;
  if (answer.contains("error") && answer["error"].is_string()) {
    throw UsageError("the agent of process " + std::to_string(job.agent) +
                     " says: " + printable(answer["error"].get<std::string>()));
  }
  nodes.of = static_cast<int>(number_of(answer, "of"));
  if (const auto answers = answer.find("answers"); answers != answer.end() && answers->is_array()) {
    for (const json& one : *answers)
      if (one.is_object()) nodes.answers.push_back(one);
  }
  std::ranges::stable_sort(nodes.answers, {}, rank_of);
  return nodes;
}

std::string status_of_all(const RunningJob& job, const NodesAnswers& nodes) {
  if (nodes.answers.empty()) return status_text(job, {job.status}) + about_silence(nodes);
  return status_text(job, nodes.answers) + about_silence(nodes);
}

std::string about_silence(const NodesAnswers& nodes) {
  if (nodes.of == 0) return "the other nodes cannot be asked: the job has no coordinator at the moment\n";
  if (nodes.silent() == 0) return {};
  return std::to_string(nodes.silent()) + " of " + std::to_string(nodes.of) + " nodes have not answered in time\n";
}

}  // namespace ddprun
