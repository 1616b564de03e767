// Lists the TCP connections of a worker to other machines, with the round-trip time that the kernel measures (sock_diag). These
// times show which link is slow, whatever library exchanges the gradients.
#pragma once

#include <sys/types.h>

#include <vector>

#include "launcher/stragglers/straggler_state.hpp"

namespace ddprun {

// Returns only connections on which the process has sent data in the last 2 seconds. Returns no connections if the kernel does
// not report them.
std::vector<RankLink> links_of_process(pid_t pid);

}  // namespace ddprun
