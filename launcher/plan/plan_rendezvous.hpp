// Reads and checks torchrun's options about many machines: --nnodes, --node-rank, --rdzv-*, --standalone, --local-addr.
// plan_network.cpp calls it and adds what one machine needs. Pure.
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
  bool endpoint_given = false;        // --rdzv-endpoint is given and has an effect: no --standalone
  std::vector<std::string> notes;     // options without effect, for -v
  std::vector<std::string> warnings;  // probable mistakes
};

// Throws UsageError.
RendezvousChoice resolve_rendezvous(const Settings& settings);

// Reads "k=v,k=v" by torchrun's rules: quotes around the whole, spaces around names, '=' inside values; empty keys, values and
// entries are errors. Throws UsageError.
std::vector<std::pair<std::string, std::string>> parse_rdzv_conf(const Setting& setting);

}  // namespace ddprun
