// Parses Slurm's compressed lists. The command scontrol can expand these lists, but containers do not have it.
// trainer/surroundings/environment.cpp and launcher/options/scheduler.cpp call these functions. The code is pure: no I/O, no
// clock.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Returns the first host of a list: n0 for "n[0-3,7],m01", rack1node08 for "rack[1-2]node[08-11]". Throws UsageError if the
// list is malformed.
std::string first_slurm_host(std::string_view list);

// Returns the number of tasks of each node: 2, 2, 2, 1 for "2(x3),1". Throws UsageError if the text is malformed or has more
// than 2^20 nodes.
std::vector<int> expand_slurm_counts(std::string_view text);

}  // namespace ddprun
