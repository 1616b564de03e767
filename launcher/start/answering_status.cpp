// Implementation of answering_status.hpp.
#include "launcher/start/answering_status.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/system/realtime.hpp"
#include "launcher/control/control_folder.hpp"
#include "launcher/control/process_memory.hpp"
#include "launcher/network/job_link.hpp"

namespace ddprun {
namespace {

// A node answers at once, but for stacks. One that does not is named as silent.
constexpr std::chrono::milliseconds kAtOnce{150};
constexpr std::chrono::milliseconds kForStacks{25'000};

std::chrono::milliseconds time_for(const std::string& question) {
  const nlohmann::json asked = nlohmann::json::parse(question, nullptr, false);
  return asked.is_object() && asked.contains("ask") && asked["ask"] == "stacks" ? kForStacks : kAtOnce;
}

std::string name_of_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

bool runs_python(const Plan& plan) {
  return plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule;
}

}  // namespace

AnsweringStatus::AnsweringStatus(const Plan& plan, const AgentFiles& files, const AgentAccess& agent, StragglerLook& stragglers)
    : plan_(plan),
      job_(agent.job),
      act_as_at_signal_(agent.act_as_at_signal),
      stragglers_(stragglers),
      status_(plan, {.agent = ::getpid(), .logs = files.log_root, .report = files.report, .host = name_of_host()}),
      socket_(agent.io, control_folder(), socket_hooks()) {
  if (!plan.rendezvous.many()) return;
  inquiry_.emplace(agent.io, static_cast<std::uint64_t>(realtime_ns()), [this](rendezvous::JobQuestion question) {
    if (JobLink* const job = job_()) job->ask_nodes(std::move(question));
  });
  asked_.emplace(agent.io, agent.files, name_of_host(), runs_python(plan), node_hooks());
  stragglers_.asks_by([this] { ask_for_paces(); });
}

void AnsweringStatus::ask_for_paces() {
  inquiry_->ask(R"({"ask":"pace"})", nodes_, kAtOnce, [this](const std::string& answer) {
    const nlohmann::json told = nlohmann::json::parse(answer, nullptr, false);
    for (const nlohmann::json& node : told.value("answers", nlohmann::json::array())) {
      if (node.is_object() && node.contains("pace")) stragglers_.hear(node["pace"]);
    }
    stragglers_.finish_asking();
  });
}

void AnsweringStatus::on(const RunEvent& event) {
  status_.on(event);
  if (!asked_) return;
  if (const auto* round = std::get_if<RoundStarted>(&event)) nodes_ = round->nodes;
  if (JobLink* const job = listens_ ? nullptr : job_()) {
    job->listen([this](const rendezvous::NodeQuestion& question) { asked_->hear(question); },
                [this](const rendezvous::JobAnswer& answer) { inquiry_->hear(answer); });
    listens_ = true;
  }
}

ControlSocket::Hooks AnsweringStatus::socket_hooks() {
  ControlSocket::Hooks hooks{.status = [this] { return status(); }, .stop = [this](bool now) { stop(now); }, .nodes = {}};
  if (!plan_.rendezvous.many()) return hooks;
  hooks.nodes = [this](const std::string& question, std::function<void(std::string)> then) {
    inquiry_->ask(question, nodes_, time_for(question), std::move(then));
  };
  return hooks;
}

NodeAsked::Hooks AnsweringStatus::node_hooks() {
  return {.status = [this](std::size_t most_bytes) { return status(most_bytes); },
          .workers = [this] { return status_.running_workers(); },
          .stop = [this](bool now) { stop(now); },
          .pace = [this](std::size_t most_bytes) { return stragglers_.told(most_bytes); },
          .answer =
              [this](rendezvous::NodeAnswer answer) {
                if (JobLink* const job = job_()) job->answer(std::move(answer));
              }};
}

std::string AnsweringStatus::status(std::size_t most_bytes) const {
  const JobLink* const job = job_();
  return status_.json({.now_ns = realtime_ns(),
                       .leads = job == nullptr || job->leads(),
                       .memory_of = memory_of_process,
                       .most_bytes = most_bytes});
}

void AnsweringStatus::stop(bool now) const {
  for (const int signal : signals_that_stop(plan_.signals_to_handle, now)) act_as_at_signal_(signal);
}

}  // namespace ddprun
