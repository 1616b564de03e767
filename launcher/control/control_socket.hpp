// The agent's end of `ddprun ps`, `status`, `stop` and their like: a Unix socket in one of control_folders(), and another at an
// abstract name, for the case that there is no folder or that it vanishes. A client sends
// one line, gets one line of JSON, and the connection ends. At most 16 clients at a time, each with 4 KiB and five seconds.
// Only the user of the job and root are answered. Without the socket the job runs as well. The socket is made a tenth of a
// second after the start, so that a shorter job has no cost of it. Part of the agent's shell; one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace ddprun {

inline constexpr const char* kAskStatus = "status";
inline constexpr const char* kAskGpus = "gpus";         // what the GPUs of this machine do
inline constexpr const char* kAskStop = "stop";         // save and stop, as at SIGTERM
inline constexpr const char* kAskNodes = "nodes ";      // before a question to all nodes of the job (launcher/asked)
inline constexpr const char* kAskStopNow = "stop now";  // end the workers at once

class ControlSocket {
 public:
  struct Hooks {
    std::function<std::string()> status;  // JSON without '\n'
    std::function<void(bool now)> stop;
    // Puts the question to all nodes of the job; `then` gets their answers as JSON without '\n', within half a minute.
    std::function<void(const std::string& question, std::function<void(std::string)> then)> nodes;
    std::function<void(std::function<void(std::string)> then)> gpus{};  // `then` gets JSON without '\n', within two seconds
  };
  // It listens in the first of these folders that is or can be made the user's own.
  ControlSocket(boost::asio::io_context& io, std::vector<std::filesystem::path> folders, Hooks hooks);
  ~ControlSocket();  // removes the socket
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
