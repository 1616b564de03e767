// Reads and checks torchrun's options for multi-node jobs: --nnodes, --node-rank, --rdzv-*, --standalone, --local-addr.
// plan_network.cpp calls it and adds the options for a single machine. Pure.
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
  bool endpoint_given = false;        // --rdzv-endpoint is given and has an effect, which --standalone would prevent
  std::vector<std::string> notes;     // shown with -v: options without effect
  std::vector<std::string> warnings;  // probable mistakes
};

// Throws UsageError.
RendezvousChoice resolve_rendezvous(const Settings& settings);

// Reads "k=v,k=v" by torchrun's rules: quotes around the whole text, spaces around names, '=' inside values. Empty keys, values
// and entries are errors. Throws UsageError.
std::vector<std::pair<std::string, std::string>> parse_rdzv_conf(const Setting& setting);

}  // namespace ddprun
