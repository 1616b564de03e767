// torchrun's addressing options on one machine: master address and port, run id, and the checks of --nnodes, --node-rank and
// --rdzv-*. Called by plan.cpp. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.hpp"

namespace ddprun {

struct Network {
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one, new in every round
  std::string run_id;
  std::string master_source, port_source, run_id_source;
  std::vector<std::string> notes;
};

// `train`: a train.json takes a free port and its own name as run id by default, a script torchrun's 29500 and "none". Throws
// UsageError.
Network resolve_network(const Settings& settings, bool train, const std::string& title);

// "k=v,k=v" with torchrun's rules: quotes round the whole, spaces round names, '=' inside values; empty keys, values and
// entries are errors. Throws UsageError.
std::vector<std::pair<std::string, std::string>> parse_rdzv_conf(const Setting& setting);

}  // namespace ddprun
