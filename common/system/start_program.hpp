// Starts a short-lived program and captures its output, for example a tool that prints stacks, or a worker program with
// --describe.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace ddprun {

// Starts command[0], which must be a path. Its standard input is empty, and the two descriptors become its standard output and
// error. The child leads a process group, so that all of its processes can be killed together. The child blocks no signal,
// even if the caller does. On success, returns 0 and sets `pid` to the child, which the caller must reap. On failure, returns
// the errno.
int start_program(const std::vector<std::string>& command, int standard_output, int standard_error, pid_t& pid);

// These functions change a set of children. The code that has started a child of this set reaps it by its pid. If this process
// is a subreaper, or process 1 of a container, it also gets the orphans of other processes. Code that reaps these orphans must
// not reap the children in the set, because other code calls waitpid() for them. start_program() adds its child to the set.
// Any thread may call these functions.
void note_own_child(pid_t pid);
void forget_own_child(pid_t pid);  // call this after the child was reaped
bool is_own_child(pid_t pid);

}  // namespace ddprun
