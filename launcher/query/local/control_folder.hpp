// The directories that contain the control sockets of this user's jobs on this machine. Each agent has a Unix socket in one of
// them, named by its pid. The directory belongs to the user, and other users have no access to it: a process that can reach a
// socket could signal the agent anyway. The agent (control_socket.hpp) and the subcommands (control_client.hpp) share these
// rules.
//
// The problem is that an agent and a later `ddprun ps` may run in different environments. A login shell has
// XDG_RUNTIME_DIR=/run/user/<uid>. A cron job, a scheduler's task or a shell started by `su` has no such variable, or the value
// of another user or machine. Both must still find each other. An agent therefore uses the first directory that it can use or
// create, and a subcommand searches all of them.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// Returns the directories in the order in which an agent tries them. Normally they are /run/user/<uid>/ddprun and
// /tmp/ddprun-<uid>. If XDG_RUNTIME_DIR names a different directory that belongs to this user, only that directory is used. In
// this way a user can keep groups of jobs separate.
std::vector<std::filesystem::path> control_folders();

// Returns a name in the kernel's abstract namespace for an agent's second socket. Such a name cannot be removed. A directory,
// in contrast, may be removed while a job runs: at the end of the login session, or by a cleaner of /tmp. Another user may
// also have created it first. If the user separates groups of jobs by XDG_RUNTIME_DIR, the name contains a hash of this path.
// Other users can bind such names as well, so clients check the user at the other end.
std::string abstract_name_of(pid_t agent);

// Returns the abstract names at which agents of this user may listen, as listed in /proc/net/unix. Each name starts with "@".
// At most 1024 names are returned.
std::vector<std::string> abstract_sockets();

// Creates the directory if it does not exist. Returns false if the directory cannot be created, is not a directory, or is
// accessible to other users.
bool create_control_folder(const std::filesystem::path& folder);

// Returns true if the directory exists and only this user can access it.
bool is_private_control_folder(const std::filesystem::path& folder);

// Returns PID.sock, or PID.NUMBER.sock if `number` is above 0. Several containers may share the directory, and each of them may
// have an agent with the same pid.
std::filesystem::path control_socket_of(const std::filesystem::path& folder, pid_t agent, int number = 0);

// Returns the pid in the file name of a control socket; nullopt for any other file.
std::optional<pid_t> agent_of_socket(const std::filesystem::path& socket);

}  // namespace ddprun
