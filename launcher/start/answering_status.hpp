// Answers queries to an agent: the job's status and the control socket of this machine, --metrics-port, and in a multi-node job
// the queries that go to all nodes. Observes the agent's events; it lives as long as the agent's io_context.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/agent/agent.hpp"
#include "launcher/asked/gpu_look.hpp"
#include "launcher/asked/job_inquiry.hpp"
#include "launcher/asked/node_asked.hpp"
#include "launcher/beside/straggler_look.hpp"
#include "launcher/control/control_socket.hpp"
#include "launcher/control/job_status.hpp"
#include "launcher/control/metrics_port.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

class AnsweringStatus : public RunObserver {
 public:
  // `stragglers` must outlive this object.
  AnsweringStatus(const Plan& plan, const AgentFiles& files, const AgentAccess& agent, StragglerLook& stragglers);
  void on(const RunEvent& event) override;

 private:
  ControlSocket::Hooks socket_hooks();
  NodeAsked::Hooks node_hooks();
  void ask_for_paces();
  std::string status(std::size_t most_bytes = std::string::npos) const;
  void ask_gpus(GpuLook::Then then);
  void stop(bool now) const;

  const Plan& plan_;
  std::function<JobLink*()> job_;
  std::function<void(int signal)> stop_as_at_;
  StragglerLook& stragglers_;
  JobStatus status_;
  int nodes_ = 1;  // number of nodes in the round
  GpuLook gpus_;
  // Set for a multi-node job only.
  std::optional<JobInquiry> inquiry_;
  std::optional<NodeAsked> asked_;
  bool listens_ = false;
  ControlSocket socket_;
  std::optional<MetricsPort> metrics_;
};

}  // namespace ddprun
