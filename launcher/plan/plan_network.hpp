// Network settings for the workers: master address and port, run id, and the rendezvous of agents on many machines. plan.cpp
// calls it. It queries no resolver and opens no port.
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
  int master_port = 0;  // 0: a free port, and another one in each round
  PortNeed master_port_need = PortNeed::kExactly;
  std::string run_id;
  std::string master_source, port_source, run_id_source;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

// Defaults of a train.json (`train`): a free port, and its own name as run id. Defaults of a script are those of torchrun: port
// 29500 and run id "none". Throws UsageError.
Network resolve_network(const Settings& settings, bool train, const std::string& title);

// Decides which process hosts the store of scripts at MASTER_PORT. Reads --agent-store, and PyTorch's variable with the same
// meaning, into plan.agent_store, and records the source. A train.json has no such store.
void choose_store(Plan& plan, const Settings& settings, const Environment& environment);

// Reads --metrics-port into the plan and records its source. Throws UsageError.
void choose_metrics_port(Plan& plan, const Settings& settings);

}  // namespace ddprun
