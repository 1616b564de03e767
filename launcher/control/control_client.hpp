// Queries the running jobs of this user on this machine (control_socket.hpp). Used by the subcommands. The calls block.
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
  // Pid as seen from here. In its container an agent has a different pid, which is part of its socket's name.
  pid_t agent = 0;
  std::filesystem::path socket;  // begins with "@" for an abstract name
  nlohmann::json
      status;  // launcher/control/job_status.hpp; null if the agent does not answer, for example because it is stopped
};

// Sorted by pid. Agents in a container whose processes are not visible from here are left out. Waits 2 s in total for agents
// that do not answer, and 2 s more for each whose listen queue is full. Removes the sockets of agents that were killed.
std::vector<RunningJob> running_jobs();

// Returns the status without members of an unexpected type, and without workers that are not objects. The check is needed
// because any program of the user may answer at a socket.
nlohmann::json with_known_types(nlohmann::json status);

// Sends the request and returns the answer without its '\n'; nullopt if none arrives within that time.
std::optional<std::string> ask_job(const std::filesystem::path& socket, const std::string& request,
                                   std::chrono::seconds within = std::chrono::seconds(2));

// The same for a caller that awaits several answers. It waits until fd() is readable and then calls read().
class OpenQuestion {
 public:
  OpenQuestion(const std::filesystem::path& socket, const std::string& request);
  int fd() const { return socket_.get(); }
  // Reads the available bytes. Returns true if the answer is complete.
  bool read();
  // Without its '\n'; nullopt if the agent has ended or refused to answer.
  std::optional<std::string> answer() const;

 private:
  Descriptor socket_;
  std::string text_;
};

}  // namespace ddprun
