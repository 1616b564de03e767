// torchrun's options about many machines, read and checked: --nnodes, --node-rank, --rdzv-*, --standalone, --local-addr. Called
// by plan_network.cpp, which adds what one machine needs. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/rendezvous_plan.hpp"

namespace ddprun {

// torchrun's --master-port where none is given.
inline constexpr int kStaticPort = 29500;

struct RendezvousChoice {
  RendezvousPlan plan;
  bool endpoint_given = false;        // --rdzv-endpoint counts: given, and not --standalone
  std::vector<std::string> notes;     // without effect, for -v
  std::vector<std::string> warnings;  // probably a mistake
};

// Throws UsageError.
RendezvousChoice resolve_rendezvous(const Settings& settings);

// "k=v,k=v" with torchrun's rules: quotes round the whole, spaces round names, '=' inside values; empty keys, values and
// entries are errors. Throws UsageError.
std::vector<std::pair<std::string, std::string>> parse_rdzv_conf(const Setting& setting);

}  // namespace ddprun
