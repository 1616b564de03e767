// Queries the running jobs of this user on this machine through their control sockets (control_socket.hpp). The subcommands use
// these functions, which block.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/system/descriptor.hpp"

namespace ddprun {

struct RunningJob {
  // The agent's pid in the pid namespace of this process. An agent in a container also has a different pid, which is part of
  // its socket's name.
  pid_t agent = 0;
  std::filesystem::path socket;  // starts with "@" for an abstract name
  // launcher/query/local/job_status.hpp creates this JSON object in the agent. The value is null if the agent does not answer,
  // for example because it is stopped by SIGSTOP.
  nlohmann::json status;
};

// Returns the running jobs, sorted by pid. It omits agents in containers whose processes are not visible here. The call waits
// two seconds in total for agents that do not answer. It waits up to two seconds more for each agent with a full listen queue.
// It removes the sockets of agents that were killed.
std::vector<RunningJob> running_jobs();

// Returns the status without members of an unexpected type and without workers that are not objects. Any program of the user
// may answer at a socket, so the types must be checked.
nlohmann::json with_known_types(nlohmann::json status);

// Sends a request and returns the answer without its '\n', or nullopt if no complete answer arrives in time.
std::optional<std::string> query_job(const std::filesystem::path& socket, const std::string& request,
                                     std::chrono::seconds within = std::chrono::seconds(2));

// Sends a request like query_job(), but does not block. It is for a caller that waits for several answers: the caller waits
// until fd() is readable and then calls read().
class PendingQuery {
 public:
  PendingQuery(const std::filesystem::path& socket, const std::string& request);
  int fd() const { return socket_.get(); }
  // Reads the available bytes. Returns true if the answer is complete or can no longer arrive.
  bool read();
  // Returns the answer without its '\n', or nullopt if the answer is incomplete because the agent has ended or closed the
  // connection.
  std::optional<std::string> answer() const;

 private:
  Descriptor socket_;
  std::string text_;
};

}  // namespace ddprun
