// Where the jobs of this user on this machine can be asked: folders with a Unix socket for each agent, named by its pid. The
// folder belongs to the user and is closed to others, so whoever reaches a socket in it may also signal the agent. The agent
// (control_socket.hpp) and the subcommands (control_client.hpp) share these rules.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// A new job takes the first one that it can; who looks for jobs looks into all. They are /run/user/<uid>/ddprun and
// /tmp/ddprun-<uid>: cron, a scheduler's task or `su` has no XDG_RUNTIME_DIR, or that of another machine or user, and must find
// what a login shell has started, and the other way round. Only a variable that names another folder of this user keeps his
// jobs apart there.
std::vector<std::filesystem::path> control_folders();

// A folder may vanish while a job runs (the end of all login sessions, a cleaner of /tmp), and another user may have made it
// first. So each agent has a second socket, with a name in the abstract namespace that nobody can remove. Names of a user who
// keeps jobs apart carry a hash of that folder. Others may use such a name too: the user at the other end decides.
std::string abstract_name_of(pid_t agent);

// Abstract names at which agents of this user may listen, "@" first, as the kernel lists them (/proc/net/unix). At most 1024.
std::vector<std::string> abstract_sockets();

// Makes the folder where it is missing. False when it cannot be made, is no folder, or is not only the user's.
bool own_control_folder(const std::filesystem::path& folder);

// Whether it is there and only the user's.
bool is_own_control_folder(const std::filesystem::path& folder);

// PID.sock. With a number above 0 another name, PID.NUMBER.sock: containers may share the folder, and each has its own process
// of this pid.
std::filesystem::path control_socket_of(const std::filesystem::path& folder, pid_t agent, int number = 0);

// The agent's pid in such a name; nothing for another file.
std::optional<pid_t> agent_of_socket(const std::filesystem::path& socket);

}  // namespace ddprun
