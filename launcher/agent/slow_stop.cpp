// Implementation of slow_stop.hpp.
#include "launcher/agent/slow_stop.hpp"

#include <string>
#include <utility>

#include "launcher/hang/process_look.hpp"

namespace ddprun {

SlowStop::SlowStop(boost::asio::io_context& io, Limits limits, Hooks hooks)
    : slow_timer_(io), kill_timer_(io), limits_(limits), hooks_(std::move(hooks)) {}

void SlowStop::begin_round() {
  slow_timer_.cancel();
  kill_timer_.cancel();
  stopping_ = false;
  killed_.clear();
}

void SlowStop::stops() {
  if (std::exchange(stopping_, true)) return;
  slow_timer_.expires_after(limits_.slow);
  slow_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !stopping_) return;
    std::vector<StopIsSlow::Awaited> awaited;
    const std::vector<pid_t> pids = hooks_.workers();
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
      if (pids[rank] > 0) awaited.push_back({static_cast<int>(rank), pids[rank], process_look(pids[rank])});
    }
    if (!awaited.empty()) hooks_.slow(std::chrono::duration<double>(limits_.slow).count(), std::move(awaited));
  });
}

void SlowStop::killed(const std::vector<int>& ranks) {
  const bool waits = !killed_.empty();
  killed_.insert(ranks.begin(), ranks.end());
  if (waits || killed_.empty()) return;
  kill_timer_.expires_after(limits_.unkillable);
  kill_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) look_at_the_killed();
  });
}

void SlowStop::look_at_the_killed() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits_.unkillable).count();
  const std::vector<pid_t> pids = hooks_.workers();
  for (const int rank : std::exchange(killed_, {})) {
    const auto index = static_cast<std::size_t>(rank);
    const pid_t pid = index < pids.size() ? pids[index] : 0;
    if (pid == 0) continue;
    hooks_.cannot_be_killed({rank, pid,
                             "process " + std::to_string(pid) + " is still there " + std::to_string(seconds) +
                                 " s after SIGKILL and cannot be killed: " + process_look(pid)});
  }
}

}  // namespace ddprun
