// Implementation of plan_network.hpp: the master address and port of static and of c10d rendezvous.
#include "launcher/plan/plan_network.hpp"

#include <fstream>
#include <set>

#include "common/base/error.hpp"
#include "launcher/plan/plan_rendezvous.hpp"

namespace ddprun {
namespace {

constexpr int kMeetingPort = 29400;  // for agents of a train.json, whose workers need no fixed port

std::string new_uuid() {
  std::string uuid;
  std::ifstream("/proc/sys/kernel/random/uuid") >> uuid;
  return uuid.empty() ? "standalone" : uuid;
}

// A command line writes ::1 as "[::1]".
std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

// static: --rdzv-endpoint takes precedence over --master-addr and --master-port.
void choose_static_master(const Settings& settings, bool endpoint_given, bool train, Network& network) {
  if (endpoint_given) {
    network.master_addr = network.rendezvous.host;
    network.master_port = network.rendezvous.port;
    network.master_source = network.port_source = settings.find("rdzv-endpoint")->source;
    if (train && network.rendezvous.many()) network.master_port = 0;
    return;
  }
  const Setting& addr = *settings.find("master-addr");
  if (addr.value.empty()) refuse("master-addr", addr, "a host name or address");
  network.master_addr = without_brackets(addr.value);
  network.master_source = addr.source;
  if (const Setting* port = settings.find("master-port")) {
    network.master_port = static_cast<int>(settings.integer("master-port", 0, 65535));
    network.port_source = port->source;
  } else {
    const PortRange& range = network.rendezvous.port_range;
    network.master_port = train ? 0 : !range.given() ? kStaticPort : network.rendezvous.many() ? range.low : 0;
    network.port_source = range.given() ? settings.find("port-range")->source : "default";
    if (!network.rendezvous.many()) network.master_port_need = PortNeed::kIfFree;  // no other node has to know the port
  }
  network.rendezvous.host = network.master_addr;
  network.rendezvous.port = network.master_port;
  if (!network.rendezvous.many()) return;
  if (!settings.given("master-addr")) network.rendezvous.host.clear();
  if (!train) return;
  if (!settings.given("master-port"))
    network.rendezvous.port = network.rendezvous.port_range.given() ? network.rendezvous.port_range.low : kMeetingPort;
  network.master_port = 0;
}

// c10d and --standalone: rank 0's own address and a free port.
void choose_dynamic_master(const Settings& settings, Network& network) {
  const bool standalone = network.rendezvous.standalone;
  network.port_source = standalone ? "--standalone" : settings.find("rdzv-backend")->source;
  if (network.rendezvous.local_addr.empty()) {
    network.master_source = "default";
  } else {
    network.master_addr = without_brackets(network.rendezvous.local_addr);
    network.master_source = settings.find("local-addr")->source;
  }
  for (const char* name : {"master-addr", "master-port"}) {
    if (settings.given(name)) {
      network.notes.push_back("--" + std::string(name) + " has no effect with " +
                              (standalone ? "--standalone" : "--rdzv-backend c10d") + ", as in torchrun");
    }
  }
}

void choose_run_id(const Settings& settings, bool train, const std::string& title, Network& network) {
  const Setting* id = settings.find("rdzv-id");
  if (network.rendezvous.standalone) {
    network.run_id = new_uuid();
    network.run_id_source = "--standalone";
  } else if (id != nullptr && !id->value.empty()) {
    network.run_id = id->value;
    network.run_id_source = id->source;
  } else {
    network.run_id = train ? title : "none";
    network.run_id_source = train ? "name in the config" : "default";
  }
}

// A port given by the user takes precedence over --port-range.
void warn_of_ports_outside(Network& network) {
  const PortRange& range = network.rendezvous.port_range;
  const auto outside = [&](int port) { return range.given() && port != 0 && (port < range.low || port > range.high); };
  for (const int port : std::set<int>{network.master_port, network.rendezvous.port}) {
    if (!outside(port)) continue;
    network.warnings.push_back("port " + std::to_string(port) + ", which was asked for, is outside --port-range " +
                               std::to_string(range.low) + "-" + std::to_string(range.high));
  }
}

}  // namespace

Network resolve_network(const Settings& settings, bool train, const std::string& title) {
  RendezvousChoice choice = resolve_rendezvous(settings);
  Network network;
  network.rendezvous = std::move(choice.plan);
  network.notes = std::move(choice.notes);
  network.warnings = std::move(choice.warnings);
  if (network.rendezvous.backend == RendezvousPlan::Backend::kStatic) {
    choose_static_master(settings, choice.endpoint_given, train, network);
  } else {
    choose_dynamic_master(settings, network);
  }
  choose_run_id(settings, train, title, network);
  warn_of_ports_outside(network);
  return network;
}

void choose_store(Plan& plan, const Settings& settings, const Environment& environment) {
  constexpr const char* kNotShared = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
  const Setting& setting = *settings.find("agent-store");
  const bool given = settings.given("agent-store");
  if (plan.kind == Plan::Kind::kTrain) {
    plan.agent_store = false;
    if (given) plan.notes.emplace_back("--agent-store has no effect with a train.json: its store goes through the agents");
    return;
  }
  const bool not_shared = !given && environment(kNotShared) == "1";
  plan.agent_store = !not_shared && setting.value == "on";
  if (plan.agent_store && !given) return;
  plan.sources.push_back({"agent_store", plan.agent_store ? "on" : "off: rank 0 hosts the store",
                          not_shared ? "environment " + std::string(kNotShared) : setting.source});
}

void choose_metrics_port(Plan& plan, const Settings& settings) {
  const Setting* const setting = settings.find("metrics-port");
  if (setting == nullptr) return;
  plan.metrics_port = static_cast<int>(settings.integer("metrics-port", 1, 65535));
  plan.sources.push_back({"metrics_port", setting->value, setting->source});
}

}  // namespace ddprun
