// Starts a short-lived program for its output: a stack tool, a worker program that describes itself.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace ddprun {

// Starts command[0], which must be a path, with empty input and with these descriptors as standard output and error. It leads a
// process group, so that all of its processes can be killed together. It blocks no signal, even if this program does. Returns
// the errno; 0: `pid` is the child, which the caller must reap.
int start_program(const std::vector<std::string>& command, int standard_output, int standard_error, pid_t& pid);

// Children that this process has started and reaps itself. A process that is a subreaper, or process 1 of a container, also
// gets orphans of other processes. Code that reaps orphans must leave these children to their owners. start_program() registers
// its child. Any thread may call these functions.
void note_own_child(pid_t pid);
void forget_own_child(pid_t pid);  // it was reaped
bool is_own_child(pid_t pid);

}  // namespace ddprun
