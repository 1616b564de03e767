// Implementation of answering_status.hpp.
#include "launcher/start/answering_status.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/system/realtime.hpp"
#include "launcher/control/control_folder.hpp"
#include "launcher/control/openmetrics.hpp"
#include "launcher/control/process_memory.hpp"
#include "launcher/network/job_link.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/worker_output_route.hpp"

namespace ddprun {
namespace {

// A node answers most queries immediately, except those about stacks, GPUs and logs. A node that does not answer in time is
// listed as silent.
constexpr std::chrono::milliseconds kAtOnce{150};
constexpr std::chrono::milliseconds kForStacks{25'000};
constexpr std::chrono::milliseconds kForGpus{2200};
constexpr std::chrono::milliseconds kToFindLogs{2000};  // nodes that have not answered by then are left out
constexpr std::chrono::milliseconds kForLogs = LogReaders::kLongestWait + std::chrono::milliseconds(3000);

// Log lines are requested from one node, which the query names. The logs of all nodes together would be too large.
JobInquiry::Question to_inquiry(const std::string& text, int nodes) {
  const nlohmann::json asked = nlohmann::json::parse(text, nullptr, false);
  const auto word = [&](const char* key) {
    return asked.is_object() && asked.contains(key) && asked[key].is_string() ? asked[key].get<std::string>() : "";
  };
  JobInquiry::Question question{.text = text, .nodes = nodes, .within = kAtOnce};
  if (word("ask") == "stacks") question.within = kForStacks;
  if (word("ask") == "gpus") question.within = kForGpus;
  if (word("ask") == "logs") question.within = kToFindLogs;
  if (word("ask") != "log lines") return question;
  question.to = node_of(word("to"));
  question.nodes = 1;
  question.most_bytes = LogReaders::kMostBytes;
  question.within = kForLogs;
  return question;
}

std::string name_of_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

bool runs_python(const Plan& plan) {
  return plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule;
}

bool writes_log_files(const Plan& plan) {
  return kept_files(plan) == KeptFiles::kAll || plan.output.redirects.any() || plan.output.tee.any();
}

}  // namespace

AnsweringStatus::AnsweringStatus(const Plan& plan, const AgentFiles& files, const AgentAccess& agent, StragglerLook& stragglers)
    : plan_(plan),
      job_(agent.job),
      stop_as_at_(agent.stop_as_at),
      stragglers_(stragglers),
      status_(plan, {.agent = ::getpid(), .logs = files.log_root, .report = files.report, .host = name_of_host()}),
      gpus_(agent.io),
      socket_(agent.io, control_folders(), socket_hooks()) {
  if (plan.metrics_port > 0) {
    metrics_.emplace(
        agent.io, plan.metrics_port,
        [this] {
          const nlohmann::json told = nlohmann::json::parse(status());
          return openmetrics_of(told, {told});
        },
        [&console = agent.console](const std::string& problem) { console.line(Stream::kStderr, "ddprun: " + problem); });
  }
  if (!plan.rendezvous.many()) return;
  inquiry_.emplace(agent.io, static_cast<std::uint64_t>(realtime_ns()), [this](rendezvous::JobQuestion question) {
    if (JobLink* const job = job_()) job->ask_nodes(std::move(question));
  });
  asked_.emplace(agent.io, agent.files,
                 NodeAsked::Facts{.host = name_of_host(),
                                  .python = runs_python(plan),
                                  .logs = files.log_root,
                                  .writes_logs = !files.log_root.empty() && writes_log_files(plan)},
                 node_hooks());
  stragglers_.asks_by([this] { ask_for_paces(); });
}

void AnsweringStatus::ask_for_paces() {
  inquiry_->ask({.text = R"({"ask":"pace"})", .nodes = nodes_, .within = kAtOnce}, [this](const std::string& answer) {
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
  ControlSocket::Hooks hooks{.status = [this] { return status(); },
                             .stop = [this](bool now) { stop(now); },
                             .nodes = {},
                             .gpus =
                                 [this](std::function<void(std::string)> then) {
                                   ask_gpus([then = std::move(then)](const nlohmann::json& gpus) {
                                     then(gpus.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
                                   });
                                 }};
  if (!plan_.rendezvous.many()) return hooks;
  hooks.nodes = [this](const std::string& question, std::function<void(std::string)> then) {
    JobInquiry::Question asked = to_inquiry(question, nodes_);
    if (asked.most_bytes > 0 && (!asked.to || *asked.to == rendezvous::NodeId{}))
      return then(R"({"error":"log lines are asked of one node"})");
    inquiry_->ask(std::move(asked), std::move(then));
  };
  return hooks;
}

NodeAsked::Hooks AnsweringStatus::node_hooks() {
  return {.status = [this](std::size_t most_bytes) { return status(most_bytes); },
          .workers = [this] { return status_.running_workers(); },
          .own =
              [this] {
                const JobLink* const job = job_();
                return job != nullptr && job->release().group_rank >= 0
                           ? OwnRanks{job->release().rank_offset, plan_.nproc_per_node}
                           : OwnRanks{};
              },
          .round = [this] { return job_() != nullptr ? job_()->release().id.round : -1; },
          .stop = [this](bool now) { stop(now); },
          .gpus = [this](GpuLook::Then then) { ask_gpus(std::move(then)); },
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

// A job on CPUs reports no GPUs: if the machine has some, they belong to other jobs.
void AnsweringStatus::ask_gpus(GpuLook::Then then) {
  if (plan_.device == "cpu") return then({{"gpus", nlohmann::json::array()}});
  gpus_.ask(std::move(then));
}

void AnsweringStatus::stop(bool now) const {
  if (!now) return stop_as_at_(SIGTERM);
  for (int times = 0; times < 2; ++times) stop_as_at_(SIGINT);  // like pressing Ctrl-C twice: the second one kills the workers
}

}  // namespace ddprun
