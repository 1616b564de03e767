#include "launcher/query/cluster/node_query_handler.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace ddprun {
namespace {

using nlohmann::json;
using rendezvous::NodeQuery;

constexpr std::chrono::seconds kStackTimeout{5};
constexpr std::chrono::seconds kAllStacksTimeout{15};

}  // namespace

NodeQueryHandler::NodeQueryHandler(boost::asio::io_context& io, FileQueue& files, Facts facts, Node& node)
    : io_(io),
      files_(files),
      facts_(std::move(facts)),
      node_(node),
      logs_(io, files, facts_.logs, node, [this](const NodeQuery& question, json text) { answer(question, std::move(text)); }) {
}

void NodeQueryHandler::receive(NodeQuery question) {
  question.max_bytes = std::min(question.max_bytes, static_cast<std::uint32_t>(rendezvous::kMaxAnswerBytes));
  const json query = json::parse(question.text, nullptr, false);
  const std::string what = query.is_object() && query.contains("ask") && query["ask"].is_string() ? query["ask"] : "";
  if (what == "status") {
    std::string text = node_.status(question.max_bytes);
    if (text.size() > question.max_bytes) return answer(question, {{"error", "its status is too long for the answer"}});
    return node_.answer({.requester = question.requester, .number = question.number, .text = std::move(text)});
  }
  if (what == "stop" || what == "stop now") {
    const bool now = what == "stop now";
    answer(question, {{"stops", true}});
    // The state machine that received the query is still running when this code is called. So the stop is posted, and runs
    // after the state machine has returned.
    return boost::asio::post(io_, [this, now, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) node_.stop(now);
    });
  }
  if (what == "pace") {
    constexpr std::size_t kReservedBytes = 256;
    return answer(question,
                  {{"pace", node_.take_paces(question.max_bytes - std::min<std::size_t>(question.max_bytes, kReservedBytes))}});
  }
  if (what == "gpus") {
    return node_.probe_gpus([this, question](const json& gpus) {
      json text = gpus;
      if (text.dump().size() + 256 > question.max_bytes) text = {{"error", "it has too many GPUs for one answer"}};
      answer(question, std::move(text));
    });
  }
  if (what == "stacks") {
    const bool one = query.contains("rank") && query["rank"].is_number_integer();
    return begin_stacks(question, one ? std::optional(query["rank"].get<int>()) : std::nullopt);
  }
  if (what == "logs") {
    const LocalRanks local_ranks = node_.local_ranks();
    return answer(question, {{"first_rank", local_ranks.first},
                             {"ranks", local_ranks.count},
                             {"round", node_.round()},
                             {"pid", ::getpid()},
                             {"files", facts_.writes_logs}});
  }
  if (what == "log lines") return logs_.receive(question, query);
  answer(question, {{"error", "unknown request"}});
}

void NodeQueryHandler::answer(const NodeQuery& question, json text) {
  text["host"] = facts_.host;
  node_.answer({.requester = question.requester,
                .number = question.number,
                .text = text.dump(-1, ' ', false, json::error_handler_t::replace)});
}

void NodeQueryHandler::begin_stacks(const NodeQuery& question, std::optional<int> rank) {
  if (stacks_) return answer(question, {{"error", "the node is already reading call stacks for another query; try again"}});
  std::vector<std::pair<int, std::int64_t>> workers = node_.running_workers();
  if (rank) std::erase_if(workers, [&](const auto& worker) { return worker.first != *rank; });
  std::ranges::reverse(workers);
  stacks_ = Stacks{};
  stacks_->question = question;
  stacks_->waiting = std::move(workers);
  stacks_->until = std::chrono::steady_clock::now() + kAllStacksTimeout;
  const auto tool = std::make_shared<StackTool>();
  files_.add([tool, python = facts_.python] { *tool = find_stack_tool(python); },
             [this, tool, alive = std::weak_ptr(alive_)] {
               if (alive.expired()) return;
               stacks_->tool = *tool;
               if (!tool->name.empty() || stacks_->waiting.empty()) return next_stack();
               const NodeQuery query = std::exchange(stacks_, std::nullopt)->question;
               answer(query, {{"error", "no stack tool was found: expected py-spy, eu-stack or gdb on the PATH of the node"}});
             });
}

void NodeQueryHandler::next_stack() {
  stacks_->run.reset();
  if (stacks_->waiting.empty()) {
    const Stacks done = std::exchange(stacks_, std::nullopt).value();
    return answer(done.question, {{"stacks", done.found}, {"left_out", done.left_out}});
  }
  const int rank = stacks_->waiting.back().first;
  const std::int64_t pid = stacks_->waiting.back().second;
  stacks_->waiting.pop_back();
  stacks_->run =
      std::make_unique<StackRun>(io_, stacks_->tool, pid, kStackTimeout, [this, rank, pid](std::vector<std::string> frames) {
        constexpr std::size_t kReservedBytes = 256;
        const json one{{"rank", rank}, {"pid", pid}, {"tool", stacks_->tool.name}, {"frames", std::move(frames)}};
        const std::size_t size = one.dump(-1, ' ', false, json::error_handler_t::replace).size() + 1;
        if (stacks_->bytes + size + kReservedBytes > stacks_->question.max_bytes) {
          ++stacks_->left_out;
        } else {
          stacks_->found.push_back(one);
          stacks_->bytes += size;
        }
        if (std::chrono::steady_clock::now() > stacks_->until) {
          stacks_->left_out += static_cast<int>(stacks_->waiting.size());
          stacks_->waiting.clear();
        }
        // next_stack() is posted, because the StackRun that calls this function must return before it is destroyed.
        boost::asio::post(io_, [this, alive = std::weak_ptr(alive_)] {
          if (!alive.expired()) next_stack();
        });
      });
}

}  // namespace ddprun
