// The agent's end of `ddprun ps`, `status`, `stop` and similar commands. It is a Unix socket in one of control_folders(), and a
// second one at an abstract name, in case there is no folder or the folder vanishes. A client sends one line and receives one
// line of JSON; then the connection ends. At most 16 clients at a time, each with 4 KiB and five seconds. Only the user of the
// job and root are answered. The job also runs without the socket. The socket is created a tenth of a second after the start,
// so that shorter jobs do not pay for it. Part of the agent's shell; one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace ddprun {

inline constexpr const char* kAskStatus = "status";
inline constexpr const char* kAskGpus = "gpus";         // use of this machine's GPUs
inline constexpr const char* kAskStop = "stop";         // save and stop, as on SIGTERM
inline constexpr const char* kAskNodes = "nodes ";      // prefix of a query to all nodes of the job (launcher/asked)
inline constexpr const char* kAskStopNow = "stop now";  // end the workers immediately

class ControlSocket {
 public:
  struct Hooks {
    std::function<std::string()> status;  // JSON without '\n'
    std::function<void(bool now)> stop;
    // Sends the query to all nodes of the job. `then` receives their answers as JSON without '\n', within half a minute.
    std::function<void(const std::string& question, std::function<void(std::string)> then)> nodes;
    std::function<void(std::function<void(std::string)> then)> gpus{};  // `then` receives JSON without '\n', within two seconds
  };
  // Listens in the first of these folders that belongs to the user alone or can be created so.
  ControlSocket(boost::asio::io_context& io, std::vector<std::filesystem::path> folders, Hooks hooks);
  ~ControlSocket();  // removes the socket
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
