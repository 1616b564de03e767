// The socket at which an agent answers `ddprun ps`, `status`, `stop` and similar commands: a Unix socket in one of
// control_folders(). A second socket has an abstract name, in case no directory is usable or the directory is removed.
//
// A client sends one line and receives one line of JSON; then the connection ends. At most 16 clients are served at a time. A
// request has at most 4 KiB, and a client has five seconds. Only the user of the job and root get answers. The job also runs if
// no socket can be created. The socket is created 0.1 s after the start, so that shorter jobs do not spend time on it. The
// class is part of the agent's shell, which uses one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <nlohmann/json_fwd.hpp>

namespace ddprun {

inline constexpr const char* kStatusRequest = "status";
inline constexpr const char* kGpusRequest = "gpus";         // requests the usage of this machine's GPUs
inline constexpr const char* kReportRequest = "report";     // requests the current report, which is newer than its file
inline constexpr const char* kStopRequest = "stop";         // orders the job to save and stop, as after SIGTERM
inline constexpr const char* kNodesRequest = "nodes ";      // prefix of a query to all nodes (launcher/query/cluster)
inline constexpr const char* kStopNowRequest = "stop now";  // orders the agent to kill the workers immediately

class ControlSocket {
 public:
  struct Service {
    virtual std::string status(std::size_t max_bytes) const = 0;  // returns JSON without '\n'
    virtual std::string report() const = 0;                       // returns JSON without '\n'
    virtual void stop(bool now) = 0;
    // Returns true if the job has other nodes.
    virtual bool has_nodes() const = 0;
    // Sends the query to all nodes of the job. This function is called only if has_nodes() is true. Within half a minute,
    // calls `then` with the answers as JSON without '\n'.
    virtual void query_nodes(const std::string& question, std::function<void(std::string)> then) = 0;
    // Calls `then` with {"gpus":[...]} within two seconds.
    virtual void probe_gpus(std::function<void(const nlohmann::json&)> then) = 0;

   protected:
    ~Service() = default;
  };
  // Listens in the first directory that exists, or can be created, with access for this user only.
  ControlSocket(boost::asio::io_context& io, std::vector<std::filesystem::path> folders, Service& service);
  ~ControlSocket();  // removes the socket
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
