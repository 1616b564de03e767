// Finds and kills the descendants of this process. This process is a subreaper, so its children include every orphan below it.
// The guardian uses this module, and so does the agent if the guardian has died. The children of a dead child become children
// of the subreaper. So if this process kills its children until none is left, it reaches every descendant.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace ddprun::guardian {

// Returns the fields of /proc/PID/stat after the name; the first is the state. The result is empty if the process does not
// exist.
std::vector<std::string> stat_of(pid_t pid);

// Returns the number in the field with that index, or `otherwise` if the line has fewer fields.
std::int64_t number_at(const std::vector<std::string>& fields, std::size_t index, std::int64_t otherwise = 0);

// Returns the direct children of this process, including zombies. Call this while the process has one thread.
std::vector<pid_t> children_of_this_process();

// Returns true if this process has a child that is running or not yet reaped.
bool has_children();

// Returns all live descendants of a process, nearest first. Processes that already have another parent are not included.
std::vector<pid_t> descendants_of(pid_t pid);

// Returns true if the process is exiting, is a zombie or no longer exists.
bool is_ending(pid_t pid);

// Returns true if the process descends from this one, according to the parents that /proc shows now.
bool is_below_this_process(pid_t pid);

// Reaps ended children that this process has not started itself (common/system/start_program.hpp).
void reap_orphans_of_others();

// Kills (SIGKILL) and reaps children until only those in `spared` are left. The call blocks, so use it only when this process
// is about to end.
void kill_children_until_none_is_left(const std::set<pid_t>& spared = {});

}  // namespace ddprun::guardian
