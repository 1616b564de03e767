// Implementation of node_asked.hpp.
#include "launcher/asked/node_asked.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace ddprun {
namespace {

using nlohmann::json;
using rendezvous::NodeQuestion;

constexpr std::chrono::seconds kOneStack{5};
constexpr std::chrono::seconds kAllStacks{15};

}  // namespace

NodeAsked::NodeAsked(boost::asio::io_context& io, FileQueue& files, Facts facts, Hooks hooks)
    : io_(io),
      files_(files),
      facts_(std::move(facts)),
      hooks_(std::move(hooks)),
      logs_(io, files, facts_.logs,
            {.own = hooks_.own, .round = hooks_.round, .answer = [this](const NodeQuestion& question, json text) {
               answer(question, std::move(text));
             }}) {}

void NodeAsked::hear(NodeQuestion question) {
  question.most_bytes = std::min(question.most_bytes, static_cast<std::uint32_t>(rendezvous::kMaxAnswerBytes));
  const json asked = json::parse(question.text, nullptr, false);
  const std::string what = asked.is_object() && asked.contains("ask") && asked["ask"].is_string() ? asked["ask"] : "";
  if (what == "status") {
    std::string text = hooks_.status(question.most_bytes);
    if (text.size() > question.most_bytes) return answer(question, {{"error", "its status is too long for the answer"}});
    return hooks_.answer({.asker = question.asker, .number = question.number, .text = std::move(text)});
  }
  if (what == "stop" || what == "stop now") {
    const bool now = what == "stop now";
    answer(question, {{"stops", true}});
    // Posted, since the call comes from inside the state machine that received the query.
    return boost::asio::post(io_, [this, now, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) hooks_.stop(now);
    });
  }
  if (what == "pace") {
    constexpr std::size_t kOfTheRest = 256;
    return answer(question,
                  {{"pace", hooks_.pace(question.most_bytes - std::min<std::size_t>(question.most_bytes, kOfTheRest))}});
  }
  if (what == "gpus") {
    return hooks_.gpus([this, question](const json& gpus) {
      json text = gpus;
      if (text.dump().size() + 256 > question.most_bytes) text = {{"error", "it has too many GPUs for one answer"}};
      answer(question, std::move(text));
    });
  }
  if (what == "stacks") {
    const bool one = asked.contains("rank") && asked["rank"].is_number_integer();
    return begin_stacks(question, one ? std::optional(asked["rank"].get<int>()) : std::nullopt);
  }
  if (what == "logs") {
    const OwnRanks own = hooks_.own();
    return answer(question, {{"first_rank", own.first},
                             {"ranks", own.count},
                             {"round", hooks_.round()},
                             {"pid", ::getpid()},
                             {"files", facts_.writes_logs}});
  }
  if (what == "log lines") return logs_.hear(question, asked);
  answer(question, {{"error", "unknown request"}});
}

void NodeAsked::answer(const NodeQuestion& question, json text) {
  text["host"] = facts_.host;
  hooks_.answer(
      {.asker = question.asker, .number = question.number, .text = text.dump(-1, ' ', false, json::error_handler_t::replace)});
}

void NodeAsked::begin_stacks(const NodeQuestion& question, std::optional<int> rank) {
  if (stacks_) return answer(question, {{"error", "it reads stacks for somebody else at the moment"}});
  std::vector<std::pair<int, std::int64_t>> workers = hooks_.workers();
  if (rank) std::erase_if(workers, [&](const auto& worker) { return worker.first != *rank; });
  std::ranges::reverse(workers);
  stacks_ = Stacks{};
  stacks_->question = question;
  stacks_->waiting = std::move(workers);
  stacks_->until = std::chrono::steady_clock::now() + kAllStacks;
  const auto tool = std::make_shared<StackTool>();
  files_.add([tool, python = facts_.python] { *tool = find_stack_tool(python); },
             [this, tool, alive = std::weak_ptr(alive_)] {
               if (alive.expired()) return;
               stacks_->tool = *tool;
               if (!tool->name.empty() || stacks_->waiting.empty()) return next_stack();
               const NodeQuestion asked = std::exchange(stacks_, std::nullopt)->question;
               answer(asked, {{"error", "neither py-spy nor eu-stack nor gdb is on its PATH"}});
             });
}

void NodeAsked::next_stack() {
  stacks_->run.reset();
  if (stacks_->waiting.empty()) {
    const Stacks done = std::exchange(stacks_, std::nullopt).value();
    return answer(done.question, {{"stacks", done.found}, {"left_out", done.left_out}});
  }
  const int rank = stacks_->waiting.back().first;
  const std::int64_t pid = stacks_->waiting.back().second;
  stacks_->waiting.pop_back();
  stacks_->run =
      std::make_unique<StackRun>(io_, stacks_->tool, pid, kOneStack, [this, rank, pid](std::vector<std::string> frames) {
        constexpr std::size_t kOfTheRest = 256;
        const json one{{"rank", rank}, {"pid", pid}, {"tool", stacks_->tool.name}, {"frames", std::move(frames)}};
        const std::size_t size = one.dump(-1, ' ', false, json::error_handler_t::replace).size() + 1;
        if (stacks_->bytes + size + kOfTheRest > stacks_->question.most_bytes) {
          ++stacks_->left_out;
        } else {
          stacks_->found.push_back(one);
          stacks_->bytes += size;
        }
        if (std::chrono::steady_clock::now() > stacks_->until) {
          stacks_->left_out += static_cast<int>(stacks_->waiting.size());
          stacks_->waiting.clear();
        }
        // Posted, since the run that calls this must end first.
        boost::asio::post(io_, [this, alive = std::weak_ptr(alive_)] {
          if (!alive.expired()) next_stack();
        });
      });
}

}  // namespace ddprun
