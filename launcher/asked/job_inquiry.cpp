// Implementation of job_inquiry.hpp.
#include "launcher/asked/job_inquiry.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/base64.hpp"

namespace ddprun {
namespace {

constexpr std::ptrdiff_t kMostOpen = 8;
constexpr std::ptrdiff_t kMostOpenOfOne = 16;
constexpr std::uint32_t kMostOfAll = 8u << 20;
constexpr std::uint32_t kLeastOfEach = 1024;

}  // namespace

std::uint32_t most_bytes_of_each(int nodes) {
  const std::uint32_t share = kMostOfAll / static_cast<std::uint32_t>(std::max(nodes, 1));
  return std::clamp(share, kLeastOfEach, static_cast<std::uint32_t>(rendezvous::kMaxAnswerBytes));
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
  of_ = std::max(of_, answer.nodes);
  if (!texts_.contains(answer.node) && nlohmann::json::parse(answer.text, nullptr, false).is_object()) {
    texts_.emplace(answer.node, answer.text);
  }
  return of_one_ || static_cast<int>(texts_.size()) >= of_;
}

std::string GatheredAnswers::json() const {
  std::string answers;
  std::string nodes;
  for (const auto& [node, text] : texts_) {
    answers += (answers.empty() ? "" : ",") + text;
    nodes += (nodes.empty() ? "\"" : ",\"") + name_of(node) + "\"";
  }
  return "{\"answered\":" + std::to_string(texts_.size()) + ",\"of\":" + std::to_string(of_) + ",\"answers\":[" + answers +
         "],\"nodes\":[" + nodes + "]}";
}

JobInquiry::JobInquiry(boost::asio::io_context& io, std::uint64_t first_number, Put put)
    : io_(io), next_number_(first_number), put_(std::move(put)) {}

void JobInquiry::ask(Question question, Then then) {
  const bool of_one = question.to.has_value();
  const auto alike = std::ranges::count_if(open_, [&](const auto& one) { return one.second.of_one == of_one; });
  if (alike >= (of_one ? kMostOpenOfOne : kMostOpen)) return then(R"({"error":"too many questions at a time; ask again"})");
  const std::uint64_t number = next_number_++;
  Open& open = open_
                   .try_emplace(number, Open{.gathered = GatheredAnswers(of_one),
                                             .timer = boost::asio::steady_timer(io_, question.within),
                                             .then = std::move(then),
                                             .of_one = of_one})
                   .first->second;
  open.timer.async_wait([this, number](const boost::system::error_code& error) {
    if (!error) finish(number);
  });
  put_({.number = number,
        .most_bytes = question.most_bytes > 0 ? question.most_bytes : most_bytes_of_each(question.nodes),
        .text = std::move(question.text),
        .to = question.to.value_or(rendezvous::NodeId{})});
}

void JobInquiry::hear(const rendezvous::JobAnswer& answer) {
  const auto found = open_.find(answer.number);
  if (found != open_.end() && found->second.gathered.add(answer)) finish(answer.number);
}

void JobInquiry::finish(std::uint64_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  const Then then = std::move(found->second.then);
  const std::string json = found->second.gathered.json();
  open_.erase(found);
  then(json);
}

}  // namespace ddprun
