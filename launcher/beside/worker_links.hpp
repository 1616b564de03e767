// The TCP connections of a worker to other machines, and how long a round trip takes on each, from the kernel (sock_diag). So
// it is known whose link is slow, whatever library the worker exchanges its gradients with.
#pragma once

#include <sys/types.h>

#include <vector>

#include "launcher/decide/straggler_state.hpp"

namespace ddprun {

// Of connections on which it has sent data in the last seconds. Empty where the kernel does not tell.
std::vector<RankLink> links_of_process(pid_t pid);

}  // namespace ddprun
