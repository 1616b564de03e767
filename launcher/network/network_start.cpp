#include "launcher/network/network_start.hpp"

#include "common/base/error.hpp"
#include "common/system/host_name.hpp"
#include "common/system/realtime.hpp"
#include "common/system/state_folder.hpp"
#include "launcher/machine/local_address.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/node_history/history_file.hpp"
#include "launcher/restart_policy/job_judge.hpp"
#include "rendezvous/identity/token_search.hpp"

namespace ddprun {
namespace {

using rendezvous::NodeShellSettings;

std::string local_address_of(const RendezvousPlan& plan) {
  if (plan.local_addr.empty()) return "";
  std::string number = numeric_address(plan.local_addr);
  if (number.empty()) {
    throw UsageError("--local-addr: expected an address or name of this machine, but '" + plan.local_addr +
                     "' cannot be resolved to an address; ip addr lists the addresses of this machine");
  }
  return number;
}

bool meets_at_master_port(const Plan& plan) {
  return plan.kind != Plan::Kind::kTrain && plan.rendezvous.backend == RendezvousPlan::Backend::kStatic;
}

}  // namespace

NodeShellSettings::Lead lead_of(const RendezvousPlan& plan) {
  using Lead = NodeShellSettings::Lead;
  if (plan.joins) return Lead::kNo;
  if (plan.node_rank) return *plan.node_rank == 0 ? Lead::kYes : Lead::kNo;
  if (plan.is_host) return *plan.is_host ? Lead::kYes : Lead::kNo;
  if (plan.host.empty()) return Lead::kIfPortIsFree;
  return is_local_address(plan.host) ? Lead::kIfPortIsFree : Lead::kNo;
}

NetworkStart prepare_network(const Plan& plan, std::string job, std::optional<std::string> variable) {
  const RendezvousPlan& meeting = plan.rendezvous;
  NetworkStart start;
  NodeShellSettings& shell = start.shell;
  shell.lead = lead_of(meeting);
  shell.run_id = plan.run_id;
  for (const std::string& word : plan.command) (shell.program += word) += '\0';
  if (!plan.run_dir.empty()) shell.marker = plan.run_dir / "nodes.json";
  if (!plan.run_dir.empty()) shell.run_directory = plan.run_dir;
  shell.arbiter = {meeting.arbiter_host, static_cast<std::uint16_t>(meeting.arbiter_port)};
  shell.node.alone = meeting.force_new_job;
  shell.local_address = local_address_of(meeting);
  shell.port_range = {static_cast<std::uint16_t>(meeting.port_range.low), static_cast<std::uint16_t>(meeting.port_range.high)};
  shell.meet_host = meeting.host;
  shell.meet_port = static_cast<std::uint16_t>(meeting.port);
  const bool typed_master = meeting.backend == RendezvousPlan::Backend::kStatic && !meeting.host.empty();
  if (meets_at_master_port(plan)) {
    using MeetPort = NodeShellSettings::MeetPort;
    shell.closing = plan.agent_store ? MeetPort::kServesStore : MeetPort::kClosesAtRelease;
    if (shell.lead == NodeShellSettings::Lead::kYes && meeting.port != 0) wait_for_port_release(meeting.port);
  }

  rendezvous::MemberSettings& member = shell.node.member;
  member.wanted_group_rank = meeting.node_rank.value_or(-1);
  member.role = plan.role;
  member.local_world_size = plan.nproc_per_node;
  member.hostname = host_name();
  member.join_timeout = meeting.join_timeout;
  member.lease = meeting.heartbeat_timeout;
  if (!meeting.joins) {
    member.min_nodes = meeting.min_nodes;
    member.max_nodes = meeting.max_nodes;
  }

  rendezvous::CoordinatorSettings& coordinator = shell.node.coordinator;
  coordinator.min_nodes = meeting.min_nodes;
  coordinator.max_nodes = meeting.max_nodes;
  coordinator.last_call = meeting.last_call_timeout;
  coordinator.join_timeout = meeting.join_timeout;
  coordinator.lease = meeting.heartbeat_timeout;
  coordinator.max_restarts = plan.max_restarts;
  if (meeting.exclude_failing_nodes) {
    const NodeHistory history = NodeHistoryFile(state_folder()).read().history;
    for (FailingNode& node : failing_nodes(history, realtime_ns() / 1'000'000'000))
      coordinator.failing_hosts.insert(std::move(node.host));
  }
  if (typed_master) coordinator.master_addr = plan.master_addr;
  if (meets_at_master_port(plan)) coordinator.master_port = static_cast<std::uint16_t>(plan.master_port);
  shell.job = std::move(job);

  const FoundToken found = find_token(
      {.token_file = plan.token_file,
       .variable = std::move(variable),
       .run_dir = plan.run_dir,
       .user_file = token_file_of_user(),
       .node = shell.lead == NodeShellSettings::Lead::kNo ? TokenSources::Node::kOther : TokenSources::Node::kFirst});
  shell.token = std::string(found.token.text());
  start.token_file = found.file.string();
  return start;
}

}  // namespace ddprun
