#include "launcher/leftovers/stuck_monitor.hpp"

#include <string>

namespace ddprun {

StuckMonitor::StuckMonitor(boost::asio::io_context& io, std::chrono::milliseconds limit, Agent& agent)
    : timer_(io), agent_(agent) {
  if (limit.count() > 0) watch_.emplace(limit);
}

void StuckMonitor::begin_round() {
  if (!watch_) return;
  watch_->clear();
  check_workers();
}

void StuckMonitor::check_workers() {
  timer_.expires_after(watch_->interval());
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const auto time = std::chrono::steady_clock::now();
    const std::vector<pid_t> pids = agent_.worker_pids();
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
      const pid_t pid = pids[rank];
      if (pid == 0 || !watch_->observe(static_cast<int>(rank), process_state(pid), time)) continue;
      agent_.feed(agent_event::WorkerStuck{static_cast<int>(rank), pid,
                                           "process " + std::to_string(pid) +
                                               " has been in uninterruptible sleep (state D) for longer than "
                                               "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT allows, and cannot be killed"});
      if (agent_.is_over()) return;
    }
    check_workers();
  });
}

}  // namespace ddprun
