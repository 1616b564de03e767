// Answers queries to an agent. The queries arrive at the control socket of this machine, at --metrics-port and, in a
// multi-node job, from other nodes. The class connects those interfaces with JobStatus, which observes the agent's events. The
// object exists as long as the agent's io_context.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/agent/agent.hpp"
#include "launcher/network/job_link.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/query/cluster/gpu_probe.hpp"
#include "launcher/query/cluster/job_query.hpp"
#include "launcher/query/cluster/node_query_handler.hpp"
#include "launcher/query/local/control_socket.hpp"
#include "launcher/query/local/job_status.hpp"
#include "launcher/query/local/metrics_port.hpp"
#include "launcher/stragglers/straggler_monitor.hpp"

namespace ddprun {

// Returns the facts about this agent that its status contains.
JobFacts facts_of_job(const AgentFiles& files);

class StatusService final : private ControlSocket::Service, private NodeQueryHandler::Node, private JobLink::Queries {
 public:
  // `report` returns the current report on one line. It is an empty function if this agent writes no report. The function may
  // use objects that, like `job_status` and `stragglers`, outlive this object.
  StatusService(const Plan& plan, const AgentFiles& files, const AgentAccess& agent, const JobStatus& job_status,
                StragglerMonitor& stragglers, std::function<std::string()> report);

 private:
  // These functions answer queries from this machine and from other nodes.
  std::string status(std::size_t max_bytes) const override;
  std::string report() const override { return report_ ? report_() : R"({"error":"this agent writes no report"})"; }
  void stop(bool now) override;
  void probe_gpus(std::function<void(const nlohmann::json&)> then) override;
  bool has_nodes() const override { return job_ != nullptr; }
  void query_nodes(const std::string& question, std::function<void(std::string)> then) override;
  std::vector<std::pair<int, std::int64_t>> running_workers() const override { return status_.running_workers(); }
  nlohmann::json take_paces(std::size_t max_bytes) override { return stragglers_.take_reports(max_bytes); }
  LocalRanks local_ranks() const override;
  std::int64_t round() const override { return job_->release().id.round; }
  void answer(rendezvous::NodeAnswer answer) override { job_->answer(std::move(answer)); }

  void on_query(const rendezvous::NodeQuery& query) override { node_queries_->receive(query); }
  void on_answer(const rendezvous::JobAnswer& answer) override { job_queries_->receive(answer); }
  void query_paces();

  const Plan& plan_;
  JobLink* job_;  // nullptr on a single machine
  std::function<void(int signal)> stop_as_on_signal_;
  const JobStatus& status_;
  StragglerMonitor& stragglers_;
  std::function<std::string()> report_;
  GpuProbe gpus_;
  // These are set only in a multi-node job.
  std::optional<JobQuery> job_queries_;
  std::optional<NodeQueryHandler> node_queries_;
  ControlSocket socket_;
  std::optional<MetricsPort> metrics_;
};

}  // namespace ddprun
