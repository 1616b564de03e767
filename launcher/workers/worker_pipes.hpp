// The descriptors with which a worker starts, and the agent's ends of them: pipes or terminals for its output, a socket pair
// for its channel. launcher/agent/round_workers.cpp makes them for a round's workers, standby_processes.cpp for standbys.
#pragma once

#include <sys/ioctl.h>

#include <string>

#include "common/base/error.hpp"
#include "common/system/descriptor.hpp"

namespace ddprun {

struct Ends {
  Descriptor ours;
  Descriptor workers;
};

// The agent's end does not block. Both throw InternalError when no descriptors are left.
Ends output_pipe();
Ends channel_pair();

// A pseudo-terminal of that size. It is raw, since a real terminal gets the bytes and does the rest. Reading our end
// gives EIO when every process has closed the other one. Null descriptors when the system has no terminal left, or no /dev/pts.
Ends terminal_pair(const winsize& size);

// If the system refuses something while workers are started, the job ends with this error.
InternalError refused_by_system(const std::string& what, int error);

}  // namespace ddprun
