// The TCP connections of a worker to other machines, and the round-trip time of each, from the kernel (sock_diag). They show
// which link is slow, for any library that exchanges the gradients.
#pragma once

#include <sys/types.h>

#include <vector>

#include "launcher/decide/straggler_state.hpp"

namespace ddprun {

// Only connections on which the process has sent data in the last seconds. Empty if the kernel does not report them.
std::vector<RankLink> links_of_process(pid_t pid);

}  // namespace ddprun
