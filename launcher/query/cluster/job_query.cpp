#include "launcher/query/cluster/job_query.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/base64.hpp"

namespace ddprun {
namespace {

constexpr std::ptrdiff_t kMaxOpen = 8;
constexpr std::ptrdiff_t kMaxOpenToOneNode = 16;
constexpr std::uint32_t kMaxTotal = 8u << 20;
constexpr std::uint32_t kMinPerNode = 1024;

}  // namespace

std::uint32_t max_answer_bytes(int nodes) {
  const std::uint32_t share = kMaxTotal / static_cast<std::uint32_t>(std::max(nodes, 1));
  return std::clamp(share, kMinPerNode, static_cast<std::uint32_t>(rendezvous::kMaxAnswerBytes));
}

std::string name_of(const rendezvous::NodeId& node) {
  return to_base64({reinterpret_cast<const char*>(node.data()), node.size()});
}

std::optional<rendezvous::NodeId> node_of(std::string_view name) {
  const std::optional<std::string> bytes = from_base64(name);
  rendezvous::NodeId node{};
  if (!bytes || bytes->size() != node.size()) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), node.begin());
  return node;
}

bool GatheredAnswers::add(const rendezvous::JobAnswer& answer) {
  node_count_ = std::max(node_count_, answer.nodes);
  if (!texts_.contains(answer.node) && nlohmann::json::parse(answer.text, nullptr, false).is_object()) {
    texts_.emplace(answer.node, answer.text);
  }
  return single_node_ || static_cast<int>(texts_.size()) >= node_count_;
}

std::string GatheredAnswers::json() const {
  std::string answers;
  std::string nodes;
  for (const auto& [node, text] : texts_) {
    answers += (answers.empty() ? "" : ",") + text;
    nodes += (nodes.empty() ? "\"" : ",\"") + name_of(node) + "\"";
  }
  return "{\"answered\":" + std::to_string(texts_.size()) + ",\"of\":" + std::to_string(node_count_) + ",\"answers\":[" +
         answers + "],\"nodes\":[" + nodes + "]}";
}

JobQuery::JobQuery(boost::asio::io_context& io, std::uint64_t first_number, Send send)
    : io_(io), next_number_(first_number), send_(std::move(send)) {}

void JobQuery::query(Request question, Then then) {
  const bool single_node = question.to.has_value();
  const auto open_of_kind =
      std::ranges::count_if(open_, [&](const auto& one) { return one.second.single_node == single_node; });
  if (open_of_kind >= (single_node ? kMaxOpenToOneNode : kMaxOpen))
    return then(R"({"error":"too many open queries; try again"})");
  const std::uint64_t number = next_number_++;
  Open& open = open_
                   .try_emplace(number, Open{.gathered = GatheredAnswers(single_node),
                                             .timer = boost::asio::steady_timer(io_, question.within),
                                             .then = std::move(then),
                                             .single_node = single_node})
                   .first->second;
  open.timer.async_wait([this, number](const boost::system::error_code& error) {
    if (!error) finish(number);
  });
  send_({.number = number,
         .max_bytes = question.max_bytes > 0 ? question.max_bytes : max_answer_bytes(question.nodes),
         .text = std::move(question.text),
         .to = question.to.value_or(rendezvous::NodeId{})});
}

void JobQuery::receive(const rendezvous::JobAnswer& answer) {
  const auto found = open_.find(answer.number);
  if (found != open_.end() && found->second.gathered.add(answer)) finish(answer.number);
}

void JobQuery::finish(std::uint64_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  const Then then = std::move(found->second.then);
  const std::string json = found->second.gathered.json();
  open_.erase(found);
  then(json);
}

}  // namespace ddprun
