// Creates the descriptors that a worker gets at its start, together with the agent's ends: pipes or terminals for its output,
// and a socket pair for its channel. launcher/agent/worker_supervisor.cpp uses it for workers, and standby_processes.cpp for
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

// The agent's end of output_pipe() is non-blocking. output_pipe() and channel_pair() throw InternalError if no descriptors are
// left.
Ends output_pipe();
Ends channel_pair();

// Creates a pseudo-terminal of that size. It is in raw mode, because the agent forwards the bytes to a real terminal, which
// processes them. A read from the agent's end fails with EIO after all processes have closed the other end. Returns empty
// descriptors if no pseudo-terminal is left, or if the system has no /dev/pts.
Ends terminal_pair(const winsize& size);

// Returns the error for a failed system call during the start of workers. This error ends the job.
InternalError refused_by_system(const std::string& what, int error);

}  // namespace ddprun
