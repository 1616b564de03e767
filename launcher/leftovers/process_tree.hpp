// Finds and kills the processes below a process: its children, which include every orphan, since it is a subreaper. The
// guardian uses it, and so does the agent when the guardian has died. Killing children until there are none reaches every
// descendant, because a dead child's children become children of the subreaper.
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

// Whether a process descends from this one, by the parents that /proc shows now.
bool is_below_this_process(pid_t pid);

// Reaps the children that have ended and that no part of this process has started (common/system/start_program.hpp).
void reap_orphans_of_others();

// Kills (SIGKILL) and reaps children until only those in `spared` are left. It blocks: use it in the last moments of a process.
void kill_children_until_none_is_left(const std::set<pid_t>& spared = {});

}  // namespace ddprun::guardian
