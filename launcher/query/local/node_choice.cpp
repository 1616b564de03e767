#include "launcher/query/local/node_choice.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/query/local/status_texts.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

std::string rank_text(const json& node) {
  const auto rank = node.find("node_rank");
  const bool has_rank = rank != node.end() && rank->is_number_integer() && rank->get<std::int64_t>() >= 0;
  return has_rank ? std::to_string(rank->get<std::int64_t>()) : "";
}

std::string list_of(const ClusterAnswers& nodes) {
  constexpr std::size_t kMaxShown = 20;
  std::string text;
  for (std::size_t i = 0; i < nodes.answers.size() && i < kMaxShown; ++i) {
    const json& node = nodes.answers[i];
    const std::string rank = rank_text(node);
    text += (i == 0 ? "" : ", ") + (rank.empty() ? "a spare" : "node " + rank) + " on " + text_of(node, "host");
  }
  if (nodes.answers.size() > kMaxShown) text += ", ...";
  return text;
}

bool is_same_host(std::string_view a, std::string_view b) {
  const auto is_short_form = [](std::string_view name, std::string_view of) {
    return name.find('.') == std::string_view::npos && of.substr(0, of.find('.')) == name;
  };
  return !a.empty() && (a == b || is_short_form(a, b) || is_short_form(b, a));
}

}  // namespace

ChosenNode choose_node(const ClusterAnswers& nodes, std::string_view word) {
  std::vector<std::size_t> by_host, by_rank;
  for (std::size_t i = 0; i < nodes.answers.size(); ++i) {
    if (i < nodes.names.size() && nodes.names[i].empty()) continue;  // no query can be sent to this node alone
    if (is_same_host(text_of(nodes.answers[i], "host"), word)) by_host.push_back(i);
    if (rank_text(nodes.answers[i]) == word) by_rank.push_back(i);
  }
  const std::vector<std::size_t>& found = by_host.empty() ? by_rank : by_host;
  if (found.empty()) {
    throw UsageError("the job has no node '" + printable(std::string(word)) + "'; it has " + list_of(nodes) +
                     (nodes.silent() > 0 ? ", and " + std::to_string(nodes.silent()) + " that did not answer" : ""));
  }
  if (found.size() > 1) {
    throw UsageError("several nodes of the job have the host name '" + printable(std::string(word)) +
                     "': name one by its rank; the job has " + list_of(nodes));
  }
  const json& node = nodes.answers[found.front()];
  return {.host = text_of(node, "host"),
          .name = found.front() < nodes.names.size() ? nodes.names[found.front()] : "",
          .agent = number_of(node, "pid")};
}

void refuse_too_few_nodes(const ClusterAnswers& nodes, const ChosenNode& leaving) {
  std::int64_t least = 1;
  for (const json& node : nodes.answers) least = std::max(least, number_of(node, "min_nodes"));
  if (nodes.of - 1 >= least) return;
  throw UsageError("the job needs at least " + std::to_string(least) + (least == 1 ? " node" : " nodes") + " (--nnodes), and " +
                   std::to_string(nodes.of) + (nodes.of == 1 ? " is" : " are") + " connected: it would stop without " +
                   leaving.host + ". Start another node first, or stop the whole job with ddprun stop");
}

}  // namespace ddprun
