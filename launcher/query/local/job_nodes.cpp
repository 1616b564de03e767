#include "launcher/query/local/job_nodes.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/query/local/control_socket.hpp"
#include "launcher/query/local/status_texts.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

int rank_of(const json& answer) {
  const auto found = answer.find("node_rank");
  return found != answer.end() && found->is_number_integer() ? found->get<int>() : -1;
}

}  // namespace

std::string nodes_query(const json& question) {
  return kNodesRequest + question.dump();
}

ClusterAnswers query_nodes(const RunningJob& job, const json& question, std::chrono::seconds within) {
  return parse_cluster_answers(job, query_job(job.socket, nodes_query(question), within));
}

ClusterAnswers parse_cluster_answers(const RunningJob& job, const std::optional<std::string>& text) {
  ClusterAnswers nodes;
  const json answer = text ? json::parse(*text, nullptr, false) : json();
  if (!answer.is_object()) return nodes;
  nodes.agent_answered = true;
  if (answer.contains("error") && answer["error"].is_string()) {
    throw UsageError("the agent of process " + std::to_string(job.agent) +
                     " reports: " + printable(answer["error"].get<std::string>()));
  }
  nodes.of = static_cast<int>(number_of(answer, "of"));
  const json answers = answer.value("answers", json::array());
  const json names = answer.value("nodes", json::array());
  std::vector<std::pair<json, std::string>> found;
  for (std::size_t i = 0; answers.is_array() && i < answers.size(); ++i) {
    if (!answers[i].is_object()) continue;
    const bool named = names.is_array() && i < names.size() && names[i].is_string();
    found.emplace_back(with_known_types(answers[i]), named ? names[i].get<std::string>() : "");
  }
  std::ranges::stable_sort(found, {}, [](const auto& one) { return rank_of(one.first); });
  for (auto& [one, name] : found) {
    nodes.answers.push_back(std::move(one));
    nodes.names.push_back(std::move(name));
  }
  return nodes;
}

std::string missing_nodes_message(const ClusterAnswers& nodes) {
  if (nodes.of == 0)
    return "the other nodes cannot be queried, since the job has no coordinator at the moment: try again in a few "
           "seconds\n";
  if (nodes.silent() == 0) return {};
  return std::to_string(nodes.silent()) + " of " + std::to_string(nodes.of) + " nodes have not answered in time\n";
}

}  // namespace ddprun
