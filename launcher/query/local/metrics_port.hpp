// The agent's HTTP endpoint for Prometheus, if --metrics-port is given. It listens on 127.0.0.1, and GET /metrics returns the
// job's status as OpenMetrics text.
//
// A connection has one request of at most 4 KiB and lasts at most five seconds. At most 64 clients are connected; a new client
// replaces the oldest one that has no answer yet. If another program uses the port, the agent logs one message, and the job
// runs without the endpoint. The class is part of the agent's shell, which uses one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

namespace ddprun {

class MetricsPort {
 public:
  // `text` returns the body of a response. If the port cannot be used, `notify` receives the reason.
  MetricsPort(boost::asio::io_context& io, int port, std::function<std::string()> text,
              const std::function<void(const std::string& problem)>& notify);
  ~MetricsPort();
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
