// Reads and checks torchrun's options for multi-node jobs: --nnodes, --node-rank, --rdzv-*, --standalone, --local-addr.
// plan_network.cpp calls it and then chooses the master address and port. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/rendezvous_plan.hpp"

namespace ddprun {

// The default of torchrun's --master-port.
inline constexpr int kStaticPort = 29500;

struct RendezvousChoice {
  RendezvousPlan plan;
  bool endpoint_given = false;        // true if --rdzv-endpoint is given and has an effect (with --standalone it has none)
  std::vector<std::string> notes;     // options that have no effect; shown with -v
  std::vector<std::string> warnings;  // probable mistakes
};

// Throws UsageError.
RendezvousChoice resolve_rendezvous(const Settings& settings);

// Parses "k=v,k=v" by torchrun's rules. The whole text may be in quotes, keys and values may have spaces around them, and a
// value may contain '='. Throws UsageError for an empty entry, key or value.
std::vector<std::pair<std::string, std::string>> parse_rdzv_conf(const Setting& setting);

}  // namespace ddprun
