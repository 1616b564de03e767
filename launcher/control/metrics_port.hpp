// The agent's end of a Prometheus that scrapes it: a port of this machine alone (127.0.0.1), at which GET /metrics gets the
// status as OpenMetrics text. Only with --metrics-port. At most 64 clients at a time, each with 4 KiB and five seconds; a
// new one takes the place of the oldest that has no answer. One request a connection. A port that another program has is said
// once, and the job runs without. Part of the agent's shell; one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

namespace ddprun {

class MetricsPort {
 public:
  // `text` makes the answer. `say` gets why nobody can be served.
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
