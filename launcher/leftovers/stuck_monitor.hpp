// Checks periodically whether a worker sleeps in the kernel and cannot be killed (launcher/leftovers/stuck_workers.hpp). The
// monitor must poll, because the kernel sends no event for this. The monitor is active only if
// TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT is set. It is part of the agent's shell and runs on one thread.
#pragma once

#include <optional>
#include <vector>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/agent_state/agent_event.hpp"
#include "launcher/leftovers/stuck_workers.hpp"

namespace ddprun {

class StuckMonitor {
 public:
  struct Agent {
    virtual std::vector<pid_t> worker_pids() const = 0;  // returns pids, indexed by local rank; 0: the process does not run
    virtual void feed(const AgentEvent& event) = 0;      // `event` is always WorkerStuck
    virtual bool is_over() const = 0;                    // true if the job has ended; the checks then stop

   protected:
    ~Agent() = default;
  };
  // If `limit` is zero, there are no checks.
  StuckMonitor(boost::asio::io_context& io, std::chrono::milliseconds limit, Agent& agent);
  void begin_round();

 private:
  void check_workers();

  boost::asio::steady_timer timer_;
  std::optional<StuckWatch> watch_;
  Agent& agent_;
};

}  // namespace ddprun
