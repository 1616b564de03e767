// Asks the running jobs of this user on this machine (control_socket.hpp). Used by the subcommands; it blocks.
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
  pid_t agent = 0;  // as seen from here: an agent in a container has another pid there, by which its socket is named
  std::filesystem::path socket;  // with "@" first: an abstract name
  nlohmann::json
      status;  // launcher/control/job_status.hpp; null when the agent does not answer, for example while it is stopped
};

// In the order of their pids. Without those in a container whose processes cannot be seen from here. Waits 2 s for all that do
// not answer, and 2 s more for each at which dozens wait already. Removes the sockets of agents that were killed.
std::vector<RunningJob> running_jobs();

// A status without the members whose type is not the expected one, and without workers that are not objects. Any program of the
// user may answer at a socket.
nlohmann::json with_known_types(nlohmann::json status);

// Sends the request and returns the answer, without its '\n'; nothing when none comes within that time.
std::optional<std::string> ask_job(const std::filesystem::path& socket, const std::string& request,
                                   std::chrono::seconds within = std::chrono::seconds(2));

// The same for a caller that awaits several answers: it waits until fd() is readable, and then calls read().
class OpenQuestion {
 public:
  OpenQuestion(const std::filesystem::path& socket, const std::string& request);
  int fd() const { return socket_.get(); }
  // Takes what has come. True: that was all.
  bool read();
  // Without its '\n'; nothing when the agent has ended or refused to answer.
  std::optional<std::string> answer() const;

 private:
  Descriptor socket_;
  std::string text_;
};

}  // namespace ddprun
