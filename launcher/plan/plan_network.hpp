// What the workers get to know about the network: master address and port, run id, and the rendezvous of agents on many
// machines. plan.cpp calls it. It asks no resolver and opens no port.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/rendezvous_plan.hpp"

namespace ddprun {

struct Network {
  RendezvousPlan rendezvous;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one, and another in each round
  PortNeed master_port_need = PortNeed::kExactly;
  std::string run_id;
  std::string master_source, port_source, run_id_source;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

// A train.json (`train`) has by default a free port, and its own name as run id; a script has torchrun's 29500 and "none".
// Throws UsageError.
Network resolve_network(const Settings& settings, bool train, const std::string& title);

// Who hosts the store of scripts at MASTER_PORT: reads --agent-store, and PyTorch's variable that says the same, into
// plan.agent_store, and records the source. A train.json has no such store.
void choose_store(Plan& plan, const Settings& settings, const Environment& environment);

// Reads --metrics-port into the plan, and records its source. Throws UsageError.
void choose_metrics_port(Plan& plan, const Settings& settings);

}  // namespace ddprun
