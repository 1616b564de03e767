#include "launcher/query/cluster/status_service.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <utility>

#include "common/system/host_name.hpp"
#include "common/system/realtime.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/worker_output_route.hpp"
#include "launcher/query/local/control_folder.hpp"
#include "launcher/query/local/openmetrics.hpp"
#include "launcher/query/local/process_memory.hpp"

namespace ddprun {
namespace {

// A node answers most queries immediately. Queries about stacks, GPUs and logs take longer and have their own timeouts. If a
// node does not answer in time, the command lists it as silent.
constexpr std::chrono::milliseconds kShortTimeout{150};
constexpr std::chrono::milliseconds kOneNodeTimeout{1500};  // for a command to a single node; its answer must not be missed
constexpr std::chrono::milliseconds kStacksTimeout{25'000};
constexpr std::chrono::milliseconds kGpusTimeout{2200};
constexpr std::chrono::milliseconds kLogDiscoveryTimeout{2000};  // nodes that have not answered after this time are omitted
constexpr std::chrono::milliseconds kLogsTimeout = LogTailer::kMaxWait + std::chrono::milliseconds(3000);

// Adds the receivers and the time limit to a query. A query may name a single receiver ("to"). A query for log lines must name
// one, because the logs of all nodes together would be too large.
JobQuery::Request to_job_query(const std::string& text, int nodes) {
  const nlohmann::json query = nlohmann::json::parse(text, nullptr, false);
  const auto word = [&](const char* key) {
    return query.is_object() && query.contains(key) && query[key].is_string() ? query[key].get<std::string>() : "";
  };
  JobQuery::Request question{.text = text, .nodes = nodes, .within = kShortTimeout};
  if (word("ask") == "stacks") question.within = kStacksTimeout;
  if (word("ask") == "gpus") question.within = kGpusTimeout;
  if (word("ask") == "logs") question.within = kLogDiscoveryTimeout;
  const bool is_log_query = word("ask") == "log lines";
  if (!is_log_query && !(query.is_object() && query.contains("to"))) return question;
  question.to = node_of(word("to")).value_or(rendezvous::NodeId{});
  question.nodes = 1;
  question.within = is_log_query ? kLogsTimeout : kOneNodeTimeout;
  if (is_log_query) question.max_bytes = LogTailer::kMaxBytes;
  return question;
}

bool runs_python(const Plan& plan) {
  return plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule;
}

bool writes_log_files(const Plan& plan) {
  return kept_files(plan) == KeptFiles::kAll || plan.output.redirects.any() || plan.output.tee.any();
}

}  // namespace

JobFacts facts_of_job(const AgentFiles& files) {
  return {.agent = ::getpid(), .logs = files.log_root, .report = files.report, .host = host_name()};
}

StatusService::StatusService(const Plan& plan, const AgentFiles& files, const AgentAccess& agent, const JobStatus& job_status,
                             StragglerMonitor& stragglers, std::function<std::string()> report)
    : plan_(plan),
      job_(agent.job),
      stop_as_on_signal_(agent.stop_as_on_signal),
      status_(job_status),
      stragglers_(stragglers),
      report_(std::move(report)),
      gpus_(agent.io),
      socket_(agent.io, control_folders(), *this) {
  if (plan.metrics_port > 0) {
    metrics_.emplace(
        agent.io, plan.metrics_port,
        [this] {
          const nlohmann::json document = nlohmann::json::parse(status(std::string::npos));
          return openmetrics_of(document, {document});
        },
        [&console = agent.console](const std::string& problem) { console.line(Stream::kStderr, "ddprun: " + problem); });
  }
  if (job_ == nullptr) return;
  job_queries_.emplace(agent.io, static_cast<std::uint64_t>(realtime_ns()),
                       [this](rendezvous::ClusterQuery question) { job_->send_query(std::move(question)); });
  node_queries_.emplace(agent.io, agent.files,
                        NodeQueryHandler::Facts{.host = host_name(),
                                                .python = runs_python(plan),
                                                .logs = files.log_root,
                                                .writes_logs = !files.log_root.empty() && writes_log_files(plan)},
                        static_cast<NodeQueryHandler::Node&>(*this));
  job_->set_queries(*this);
  stragglers_.set_query([this] { query_paces(); });
}

void StatusService::query_paces() {
  job_queries_->query({.text = R"({"ask":"pace"})", .nodes = status_.nodes(), .within = kShortTimeout},
                      [this](const std::string& answer) {
                        const nlohmann::json document = nlohmann::json::parse(answer, nullptr, false);
                        for (const nlohmann::json& node : document.value("answers", nlohmann::json::array())) {
                          if (node.is_object() && node.contains("pace")) stragglers_.receive(node["pace"]);
                        }
                        stragglers_.finish_query();
                      });
}

void StatusService::query_nodes(const std::string& question, std::function<void(std::string)> then) {
  JobQuery::Request query = to_job_query(question, status_.nodes());
  // A query with an unknown receiver must not be sent to all nodes, since the query may be an order to stop.
  if (query.to == rendezvous::NodeId{}) return then(R"({"error":"this query needs the name of one node"})");
  job_queries_->query(std::move(query), std::move(then));
}

LocalRanks StatusService::local_ranks() const {
  return job_->release().group_rank >= 0 ? LocalRanks{job_->release().rank_offset, plan_.nproc_per_node} : LocalRanks{};
}

std::string StatusService::status(std::size_t max_bytes) const {
  return status_.json({.now_ns = realtime_ns(),
                       .leads = job_ == nullptr || job_->leads(),
                       .memory_of = memory_of_process,
                       .max_bytes = max_bytes});
}

// Queries the GPU usage. A job on CPUs reports no GPUs: if the machine has GPUs, only other jobs use them.
void StatusService::probe_gpus(GpuProbe::Then then) {
  if (plan_.device == "cpu") return then({{"gpus", nlohmann::json::array()}});
  gpus_.query(std::move(then));
}

void StatusService::stop(bool now) {
  if (!now) return stop_as_on_signal_(SIGTERM);
  for (int times = 0; times < 2; ++times)
    stop_as_on_signal_(SIGINT);  // the same as Ctrl-C twice: the second signal kills the workers
}

}  // namespace ddprun
