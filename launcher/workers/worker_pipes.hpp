// The descriptors that a worker gets at its start, and the agent's ends of them: pipes or terminals for its output, a socket
// pair for its channel. launcher/agent/round_workers.cpp creates them for a round's workers, standby_processes.cpp for
// standbys.
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

// The agent's end is non-blocking. Both functions throw InternalError if no descriptors are left.
Ends output_pipe();
Ends channel_pair();

// A pseudo-terminal of that size in raw mode, since the bytes are forwarded to a real terminal, which processes them. A read
// from our end fails with EIO once every process has closed the other end. Returns null descriptors if the system has no
// pseudo-terminal left, or no /dev/pts.
Ends terminal_pair(const winsize& size);

// The error that ends the job if a system call fails while workers are started.
InternalError refused_by_system(const std::string& what, int error);

}  // namespace ddprun
