// The agent's HTTP endpoint for Prometheus. At a port of 127.0.0.1, GET /metrics returns the status as OpenMetrics text. Only
// with --metrics-port. At most 64 clients at a time, each with 4 KiB and five seconds; a new client replaces the oldest one
// without an answer. One request per connection. If another program has the port, one message is logged and the job runs
// without the endpoint. Part of the agent's shell; one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

namespace ddprun {

class MetricsPort {
 public:
  // `text` returns the response body. `say` receives the reason if the port cannot be used.
  MetricsPort(boost::asio::io_context& io, int port, std::function<std::string()> text,
              const std::function<void(const std::string& problem)>& say);
  ~MetricsPort();
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
