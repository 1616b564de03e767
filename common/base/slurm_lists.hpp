// Reads Slurm's compressed lists without scontrol, which containers lack. Pure. trainer/surroundings/environment.cpp and
// launcher/options/scheduler.cpp call it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// The first host of "n[0-3,7],m01" or "rack[1-2]node[08-11]": n0, rack1node08. Throws UsageError if the list is malformed.
std::string first_slurm_host(std::string_view list);

// The tasks of each node from "2(x3),1": 2, 2, 2, 1. Throws UsageError when it is malformed or has more than 2^20 nodes.
std::vector<int> expand_slurm_counts(std::string_view text);

}  // namespace ddprun
