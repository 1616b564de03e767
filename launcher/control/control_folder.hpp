// The folders in which the jobs of this user on this machine can be reached. Each agent has a Unix socket there, named by its
// pid. The folder belongs to the user and is closed to others, so a process that reaches a socket in it could also signal the
// agent. The agent (control_socket.hpp) and the subcommands (control_client.hpp) share these rules.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// A new job takes the first usable folder; a search for jobs looks into all of them. They are /run/user/<uid>/ddprun and
// /tmp/ddprun-<uid>. Both are needed: cron, a scheduler's task or `su` has no XDG_RUNTIME_DIR, or that of another machine or
// user. Yet it must find jobs started from a login shell, and the other way round. A variable that names another folder of this
// user is the only way to keep jobs apart.
std::vector<std::filesystem::path> control_folders();

// A folder may vanish while a job runs (at the end of all login sessions, or by a cleaner of /tmp), or another user may have
// created it first. So each agent has a second socket, with a name in the abstract namespace that cannot be removed. If the
// user keeps jobs apart, the name carries a hash of that folder. Other users may bind such a name too, so clients check the
// user at the other end.
std::string abstract_name_of(pid_t agent);

// Abstract names at which agents of this user may listen, with "@" first, as listed by the kernel (/proc/net/unix). At most
// 1024.
std::vector<std::string> abstract_sockets();

// Creates the folder if it is missing. Returns false if it cannot be created, is not a folder, or is accessible to other users.
bool own_control_folder(const std::filesystem::path& folder);

// Whether the folder exists and only the user can access it.
bool is_own_control_folder(const std::filesystem::path& folder);

// PID.sock, or PID.NUMBER.sock if `number` is above 0. Containers may share the folder, and each may have its own process with
// this pid.
std::filesystem::path control_socket_of(const std::filesystem::path& folder, pid_t agent, int number = 0);

// The agent's pid in such a name; nullopt for any other file.
std::optional<pid_t> agent_of_socket(const std::filesystem::path& socket);

}  // namespace ddprun
