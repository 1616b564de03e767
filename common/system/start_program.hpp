// Starts a program that is to say something and end: a stack tool, a worker program that describes itself.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace ddprun {

// Starts command[0], which has to be a path, with nothing to read and with these descriptors as standard output and error. It
// leads a process group, so that all of its processes can be killed together, and blocks no signal, whatever this program
// blocks. Returns the errno; 0: `pid` is the child, which the caller reaps.
int start_program(const std::vector<std::string>& command, int standard_output, int standard_error, pid_t& pid);

// The children that this process has started and reaps itself. A process that is a subreaper, or process 1 of a container, also
// gets the orphans of others. Code that reaps those must leave these to their owners. start_program() notes its own. Any thread
// may call these functions.
void note_own_child(pid_t pid);
void forget_own_child(pid_t pid);  // it was reaped
bool is_own_child(pid_t pid);

}  // namespace ddprun
