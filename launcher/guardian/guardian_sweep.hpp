// Finding and killing the processes that are left below a process: its children, which include every orphan since it is a
// subreaper. Used by the guardian, and by the agent when the guardian has died. Killing children until there are none reaches
// every descendant, because a dead child's children become children of the subreaper.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace ddprun::guardian {

// The direct children of this process, zombies included. It must have one thread.
std::vector<pid_t> children_of_this_process();

// Everything below a process that is alive, nearest first; without what has left it for another parent.
std::vector<pid_t> descendants_of(pid_t pid);

// The process has begun to end (a zombie has, too), or is gone.
bool is_ending(pid_t pid);

// Process group of a process; -1 when it is gone.
pid_t group_of(pid_t pid);

// SIGKILLs and reaps children until only those in `spared` are left. Blocks; for the last moments of a process.
void kill_children_until_none_is_left(const std::set<pid_t>& spared = {});

}  // namespace ddprun::guardian
