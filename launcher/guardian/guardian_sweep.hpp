// Finds and kills the processes that are left below a process: its children, which include every orphan, since it is a
// subreaper. The guardian uses it, and so does the agent when the guardian has died. Killing children until there are none
// reaches every descendant, because a dead child's children become children of the subreaper.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace ddprun::guardian {

// The direct children of this process, including zombies. Call it while the process has one thread.
std::vector<pid_t> children_of_this_process();

// All live descendants of a process, nearest first, without those that have left it for another parent.
std::vector<pid_t> descendants_of(pid_t pid);

// The process has begun to end (a zombie has, too), or is gone.
bool is_ending(pid_t pid);

// Process group of a process; -1 when it is gone.
pid_t group_of(pid_t pid);

// Kills (SIGKILL) and reaps children until only those in `spared` are left. It blocks: use it in the last moments of a process.
void kill_children_until_none_is_left(const std::set<pid_t>& spared = {});

}  // namespace ddprun::guardian
