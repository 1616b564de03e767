#include "launcher/agent/slow_stop.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.hpp"
#include "launcher/hang/process_summary.hpp"

namespace ddprun {

SlowStop::SlowStop(boost::asio::io_context& io, Limits limits, Agent& agent)
    : slow_timer_(io), kill_timer_(io), repeat_timer_(io), limits_(limits), agent_(agent) {}

void SlowStop::begin_round() {
  slow_timer_.cancel();
  kill_timer_.cancel();
  repeat_timer_.cancel();
  stopping_ = false;
  started_ = std::chrono::steady_clock::now();
  killed_.clear();
}

void SlowStop::stops() {
  if (std::exchange(stopping_, true)) return;
  slow_timer_.expires_after(limits_.slow);
  slow_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !stopping_) return;
    std::vector<StopIsSlow::Awaited> awaited;
    const std::vector<pid_t> pids = agent_.worker_pids();
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
      if (pids[rank] > 0) awaited.push_back({static_cast<int>(rank), pids[rank], process_summary(pids[rank])});
    }
    if (!awaited.empty()) agent_.report_slow_stop(std::chrono::duration<double>(limits_.slow).count(), std::move(awaited));
  });
}

void SlowStop::interrupted() {
  if (std::chrono::steady_clock::now() - started_ >= limits_.starting) return;
  repeat_timer_.expires_after(limits_.repeat);
  repeat_timer_.async_wait([this, interrupted_pids = agent_.worker_pids()](const boost::system::error_code& error) {
    const std::vector<pid_t> pids = agent_.worker_pids();
    if (error || pids.size() != interrupted_pids.size()) return;
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
      if (pids[rank] > 0 && pids[rank] == interrupted_pids[rank]) agent_.interrupt(static_cast<int>(rank));
    }
  });
}

void SlowStop::killed(const std::vector<int>& ranks) {
  const bool waits = !killed_.empty();
  const std::vector<pid_t> pids = agent_.worker_pids();
  for (const int rank : ranks) {
    const pid_t pid = of_rank(pids, rank);
    const auto is_known = [pid](const Killed& one) { return one.pid == pid; };
    if (pid == 0 || std::ranges::any_of(killed_, is_known)) continue;
    killed_.push_back({rank, pid, std::chrono::steady_clock::now() + limits_.unkillable});
  }
  if (!waits) wait_for_killed();
}

void SlowStop::wait_for_killed() {
  if (killed_.empty()) return;
  kill_timer_.expires_at(killed_.front().lost_at);
  kill_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) check_killed();
  });
}

void SlowStop::check_killed() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits_.unkillable).count();
  const std::vector<pid_t> pids = agent_.worker_pids();
  const auto now = std::chrono::steady_clock::now();
  std::vector<Killed> due;
  while (!killed_.empty() && killed_.front().lost_at <= now) {
    due.push_back(killed_.front());
    killed_.pop_front();
  }
  wait_for_killed();
  for (const auto& [rank, pid, lost_at] : due) {
    const auto index = static_cast<std::size_t>(rank);
    if (index >= pids.size() || pids[index] != pid) continue;
    agent_.feed(agent_event::WorkerStuck{rank, pid,
                                         "process " + std::to_string(pid) + " cannot be killed: it still exists " +
                                             std::to_string(seconds) + " s after SIGKILL (" + process_summary(pid) + ")"});
  }
}

}  // namespace ddprun
