// Checks periodically whether a worker sleeps in the kernel and cannot be killed (launcher/workers/stuck_workers.hpp), since
// the kernel sends no event for that. Active only if TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT is set. Part of the agent's
// shell; one thread.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/decide/agent_event.hpp"
#include "launcher/workers/stuck_workers.hpp"

namespace ddprun {

class StuckLook {
 public:
  struct Hooks {
    std::function<std::vector<pid_t>()> workers;  // by local rank; 0: not running
    // Returns true if the agent continues; the checks then continue as well.
    std::function<bool(const agent_event::WorkerStuck&)> found;
  };
  // `limit` zero: no checks.
  StuckLook(boost::asio::io_context& io, std::chrono::milliseconds limit, Hooks hooks);
  void begin_round();

 private:
  void look();

  boost::asio::steady_timer timer_;
  std::optional<StuckWatch> watch_;
  Hooks hooks_;
};

}  // namespace ddprun
