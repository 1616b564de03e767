// Implementation of plan_network.hpp. Static and c10d rendezvous choose the master address and port in different ways.
#include "launcher/plan/plan_network.hpp"

#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "launcher/plan/plan_program.hpp"
#include "launcher/plan/plan_rendezvous.hpp"

namespace ddprun {
namespace {

// The sources of the chosen values, which --dry-run prints. `notes` are added after the notes about --interface.
struct Sources {
  std::string master_addr{}, master_port{}, run_id{};
  std::vector<std::string> notes{};
};

// default rendezvous port of multi-node jobs with a train.json, whose workers need no fixed port
constexpr int kMeetingPort = 29400;

std::string new_uuid() {
  std::string uuid;
  std::ifstream("/proc/sys/kernel/random/uuid") >> uuid;
  return uuid.empty() ? "standalone" : uuid;
}

// Removes the brackets around an IPv6 address: "[::1]" becomes "::1".
std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

// Static rendezvous: chooses the master address and port. --rdzv-endpoint takes precedence over --master-addr and
// --master-port.
void choose_static_master(Plan& plan, const Settings& settings, bool endpoint_given, Sources& sources) {
  const bool train = plan.trains();
  if (endpoint_given) {
    plan.master_addr = plan.rendezvous.host;
    plan.master_port = plan.rendezvous.port;
    sources.master_addr = sources.master_port = settings.find("rdzv-endpoint")->source;
    if (train && plan.rendezvous.many()) plan.master_port = 0;
    return;
  }
  const Setting& addr = *settings.find("master-addr");
  if (addr.value.empty()) refuse("master-addr", addr, "a host name or address");
  plan.master_addr = without_brackets(addr.value);
  sources.master_addr = addr.source;
  if (const Setting* port = settings.find("master-port")) {
    plan.master_port = static_cast<int>(settings.integer("master-port", 0, 65535));
    sources.master_port = port->source;
  } else {
    const PortRange& range = plan.rendezvous.port_range;
    plan.master_port = train ? 0 : !range.given() ? kStaticPort : plan.rendezvous.many() ? range.low : 0;
    sources.master_port = range.given() ? settings.find("port-range")->source : "default";
    if (!plan.rendezvous.many()) plan.master_port_need = PortNeed::kIfFree;  // no other node needs to know the port in advance
  }
  plan.rendezvous.host = plan.master_addr;
  plan.rendezvous.port = plan.master_port;
  if (!plan.rendezvous.many()) return;
  if (!settings.given("master-addr")) plan.rendezvous.host.clear();
  if (!train) return;
  if (!settings.given("master-port"))
    plan.rendezvous.port = plan.rendezvous.port_range.given() ? plan.rendezvous.port_range.low : kMeetingPort;
  plan.master_port = 0;
}

// Rendezvous with c10d or --standalone: the master address is rank 0's own address, and the port is any free port.
// --master-addr and --master-port have no effect.
void choose_dynamic_master(Plan& plan, const Settings& settings, Sources& sources) {
  const bool standalone = plan.rendezvous.standalone;
  sources.master_port = standalone ? "--standalone" : settings.find("rdzv-backend")->source;
  if (plan.rendezvous.local_addr.empty()) {
    sources.master_addr = "default";
  } else {
    plan.master_addr = without_brackets(plan.rendezvous.local_addr);
    sources.master_addr = settings.find("local-addr")->source;
  }
  for (const char* name : {"master-addr", "master-port"}) {
    if (settings.given(name)) {
      sources.notes.push_back("--" + std::string(name) + " has no effect with " +
                              (standalone ? "--standalone" : "--rdzv-backend c10d") + ", as in torchrun");
    }
  }
}

void choose_run_id(Plan& plan, const Settings& settings, Sources& sources) {
  const Setting* id = settings.find("rdzv-id");
  if (plan.rendezvous.standalone) {
    plan.run_id = new_uuid();
    sources.run_id = "--standalone";
  } else if (id != nullptr && !id->value.empty()) {
    plan.run_id = id->value;
    sources.run_id = id->source;
  } else {
    plan.run_id = plan.trains() ? plan.title : "none";
    sources.run_id = plan.trains() ? "name in the config" : "default";
  }
}

std::string text_of(const PortRange& range) {
  return "--port-range " + std::to_string(range.low) + "-" + std::to_string(range.high);
}

// Adds a warning if the user has requested a port outside --port-range. The requested port is used nevertheless.
void warn_of_port_outside(Plan& plan, int port) {
  const PortRange& range = plan.rendezvous.port_range;
  if (!range.given() || port == 0 || (range.low <= port && port <= range.high)) return;
  plan.warnings.push_back("the requested port " + std::to_string(port) + " is outside " + text_of(range));
}

// Refuses a range with fewer ports than this node needs, even if no other node of the job runs on the same machine.
void refuse_too_few_ports(const Plan& plan) {
  const PortRange& range = plan.rendezvous.port_range;
  // In a multi-node job the agent needs four ports: the rendezvous port, a port for its listener, and two ports between which
  // MASTER_PORT alternates.
  const int agent = plan.rendezvous.many() ? 4 : 2;
  const int workers = plan.trains() && (plan.rendezvous.many() || plan.nproc_per_node > 1) ? plan.nproc_per_node : 0;
  if (!range.given() || range.size() >= agent + workers) return;
  throw UsageError(text_of(range) + " has " + std::to_string(range.size()) + " ports, but this node needs at least " +
                   std::to_string(agent + workers) + ": " + std::to_string(agent) +
                   " for the agent, and one for each worker (" + std::to_string(workers) + "); give a larger range");
}

// Applies --interface. The agents' own address comes from --local-addr if both options are given, since it is more precise.
void choose_interface(Plan& plan, const Settings& settings, const Machine& machine, const Environment& environment) {
  const Setting* setting = settings.find("interface");
  if (setting == nullptr) return;
  const std::string address = machine.address_of(setting->value);
  plan.interface = setting->value;
  if (plan.rendezvous.local_addr.empty()) plan.rendezvous.local_addr = address;
  plan.record("interface", setting->value, setting->source);
  for (const char* variable : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    const auto set = environment(variable);
    if (set && !set->empty() && *set != setting->value)
      plan.notes.push_back(std::string(variable) + "=" + *set +
                           " from the environment is kept: --interface does not override it");
  }
}

}  // namespace

void choose_network(Plan& plan, const Settings& settings, const Machine& machine, const Environment& environment,
                    const std::filesystem::path& cwd) {
  RendezvousChoice choice = resolve_rendezvous(settings);
  plan.rendezvous = std::move(choice.plan);
  plan.warnings.insert(plan.warnings.end(), choice.warnings.begin(), choice.warnings.end());
  Sources sources{.notes = std::move(choice.notes)};
  if (plan.rendezvous.backend == RendezvousPlan::Backend::kStatic) {
    choose_static_master(plan, settings, choice.endpoint_given, sources);
  } else {
    choose_dynamic_master(plan, settings, sources);
  }
  choose_run_id(plan, settings, sources);
  for (const int port : std::set<int>{plan.master_port, plan.rendezvous.port, plan.metrics_port})
    warn_of_port_outside(plan, port);
  refuse_too_few_ports(plan);
  for (const std::string_view option : {"nnodes", "node-rank", "rdzv-conf", "arbiter", "port-range", "exclude-failing-nodes"})
    if (settings.given(option)) plan.record(option, *settings.find(option));
  choose_interface(plan, settings, machine, environment);
  if (const std::string file = settings.text("token-file"); !file.empty()) {
    plan.token_file = absolute_in(cwd, file);
    plan.record("token_file", plan.token_file.string(), settings.find("token-file")->source);
  }
  plan.role = settings.text("role");
  plan.notes.insert(plan.notes.end(), sources.notes.begin(), sources.notes.end());
  plan.record("master_addr", plan.master_addr, sources.master_addr);
  plan.record("master_port", plan.master_port == 0 ? "a free one" : std::to_string(plan.master_port), sources.master_port);
  plan.record("run_id", plan.run_id, sources.run_id);
  plan.record("role", plan.role, settings.find("role")->source);
}

void choose_store(Plan& plan, const Settings& settings, const Environment& environment) {
  constexpr const char* kNotShared = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
  const Setting& setting = *settings.find("agent-store");
  const bool given = settings.given("agent-store");
  if (plan.trains()) {
    plan.agent_store = false;
    if (given)
      plan.notes.emplace_back("--agent-store has no effect with a train.json, whose workers reach the store through ddprun");
    return;
  }
  const bool not_shared = !given && environment(kNotShared) == "1";
  plan.agent_store = !not_shared && setting.value == "on";
  if (plan.agent_store && !given) return;
  plan.record("agent_store", plan.agent_store ? "on" : "off: rank 0 hosts the store",
              not_shared ? "environment " + std::string(kNotShared) : setting.source);
}

void choose_metrics_port(Plan& plan, const Settings& settings) {
  const Setting* const setting = settings.find("metrics-port");
  if (setting == nullptr) return;
  plan.metrics_port = static_cast<int>(settings.integer("metrics-port", 1, 65535));
  plan.record("metrics_port", setting->value, setting->source);
}

}  // namespace ddprun
