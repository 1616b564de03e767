// Decides when to wait for, terminate or kill the processes that workers leave behind, as a pure state machine. Its inputs are
// the time and the child processes of the guardian; its outputs are orders. launcher/leftovers/leftover_sweeper.hpp provides
// the inputs and carries out the orders.
//
// The problem. A worker starts other processes, and some of these leftovers outlive it. Python's resource tracker removes
// shared memory when its parent has ended. A start script is killed by a signal while its trainer is still saving. Another
// start script starts the trainer in the background and exits. The guardian is a subreaper, so it becomes the parent of all of
// them. If it killed them immediately, shared memory would leak and saves would be lost. If it waited for all of them, a
// forgotten daemon would keep the job from ending.
//
// The rules.
// - A worker that the agent stops counts as ended when all its leftovers have ended. At the agent's deadline all leftovers are
//   killed.
// - A worker that exits with 0 counts as ended when no leftover works for the job. A leftover works for the job if it is
//   connected to the store or the worker channel, or if it runs the worker's own program. A leftover has kGrace to connect, and
//   more time while it is busy starting. The program is checked only after kGrace, since a process that a shell has just forked
//   still has the shell's command line. A leftover that runs the program but was idle for kIdle no longer works for the job: a
//   loop that a start script left in the background must not keep the job from ending.
// - A worker that fails counts as ended immediately.
// - When all workers have ended, the agent orders a sweep. Leftovers have kGrace to end, then get SIGTERM, then SIGKILL. A
//   leftover that handles SIGTERM, or has received a signal before, may be saving: it has the shutdown timeout before SIGKILL.
//   The probe infers a received signal from the process's signal handlers. Between fork and exec these are the handlers of its
//   parent, so after an exec only observations of the new program count.
//   The next round waits only for leftovers that use a resource that it needs.
//
//     round runs -- sweep is ordered --> sweeping, until the round waits for no leftover ---> round is over
//     round runs -- the last child was a worker ------------------------------------------> round is over, without a sweep
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/agent_state/agent_action.hpp"

namespace ddprun::guardian {

class SweepState {
 public:
  using Time = std::chrono::milliseconds;   // time of a monotonic clock
  static constexpr Time kGrace{1000};       // time in which a leftover may end by itself; also the time between scans
  static constexpr Time kStarting{60'000};  // a busy process below this age may still be loading its libraries
  static constexpr Time kIdle{60'000};      // an unconnected leftover that is idle for this long does no work for the job

  using Order = agent_action::Sweep;
  using How = Order::How;
  // A child process of the guardian that is not a worker, a spare or the store.
  struct Observation {
    pid_t pid = 0;
    int worker = -1;               // number of the worker that started the process; -1: unknown
    bool connected = false;        // connected to the job's store or channel
    bool same_program = false;     // runs the program of a worker
    bool holds = false;            // uses a resource that the next round may need, such as a device or a port
    bool handles_sigterm = false;  // has a handler for SIGTERM
    bool reached = false;          // true if the process has also received the signal that was sent to its worker
    std::size_t program = 0;       // hash of its command line, which changes when it executes another program
    bool busy = false;             // has used CPU time since the previous scan
    Time age{0};
    std::int64_t cpu_ticks = 0;  // CPU time of the process and all its descendants, from which `busy` is computed
  };
  // How a worker with leftover processes has ended.
  enum class Ended { kStopped, kDone, kFailed };
  struct Orders {
    bool kill_cgroups = false;
    bool kill_children = false;  // true: all children of the round are killed
    bool swept = false;          // true: the agent gets a report that the sweep has ended
    std::vector<pid_t> terminate{};
    std::vector<pid_t> kill{};
    std::vector<pid_t> named{};     // processes that were ended, for a message to the user
    std::optional<Time> scan_at{};  // time of the next scan
  };

  // Call this when a worker with leftovers has ended. It records the leftovers; step() returns the orders.
  void worker_left(int worker, Ended how, const std::vector<Observation>& observed, Time now) {
    ended_[worker] = how;
    update(observed, now);
  }
  // Call this when the agent stops a worker whose own process has ended. `reaches` is true if the worker's leftovers have
  // received the signal and do not ignore it.
  void worker_stopped(int worker, bool reaches) {
    if (const auto found = ended_.find(worker); found != ended_.end()) found->second = Ended::kStopped;
    for (auto& [pid, one] : all_) {
      if (one.worker == worker && reaches) one.reached = one.signalled = true;
    }
  }
  // Returns true if a worker whose process has ended still counts as running because of its leftovers.
  bool counts_as_running(int worker, Time now) const {
    const auto found = ended_.find(worker);
    if (found == ended_.end() || found->second == Ended::kFailed) return false;
    for (const auto& [pid, one] : all_) {
      if (one.worker == worker && (found->second == Ended::kStopped || works(one, now) || starts(one, now))) return true;
    }
    return false;
  }
  void forget_worker(int worker) { ended_.erase(worker); }
  // Returns the leftovers of a worker, even if the worker still counts as running.
  std::vector<pid_t> left_by(int worker) const {
    std::vector<pid_t> pids;
    for (const auto& [pid, one] : all_) {
      if (one.worker == worker) pids.push_back(pid);
    }
    return pids;
  }
  // Returns the first leftover of that worker that works for the job.
  std::optional<pid_t> works_for(int worker, Time now) const {
    for (const auto& [pid, one] : all_) {
      if (one.worker == worker && works(one, now)) return pid;
    }
    return std::nullopt;
  }

  // Call this when the agent orders a sweep; a later order replaces an earlier one.
  Orders ordered(const Order& order, const std::vector<Observation>& observed, Time now) {
    sweeping_ = true;
    order_ = order;
    deadline_ = now + order.timeout;
    update(observed, now);
    for (auto& [pid, one] : all_) {
      if (one.kept && order.how != How::kKill) continue;
      one.how = order.how;
      one.kill_delay = order.timeout;
    }
    Orders orders = step(observed, now);
    orders.kill_cgroups = order.how == How::kKill;
    return orders;
  }

  // `observed` are the leftovers that exist now. Call this when a child has ended, and at Orders::scan_at.
  Orders step(const std::vector<Observation>& observed, Time now) {
    update(observed, now);
    Orders orders;
    orders.kill_children = lease_expired_ || (sweeping_ && order_.how == How::kKill && !all_.empty());
    bool awaited = false;
    for (auto& [pid, one] : all_) {
      end(pid, one, orders, now);
      const bool blocks =
          one.connected || one.same_program || one.holds || one.reached || one.how == How::kStop || one.how == How::kKill;
      awaited = awaited || !order_.next_round || (blocks && !one.kept);
    }
    if (sweeping_ && !awaited) {
      sweeping_ = false;
      round_is_over_ = true;
      orders.swept = true;
      ended_.clear();
      for (auto& [pid, one] : all_) one.kept = true;
    }
    return orders;
  }

  // Call this when the last worker was reaped. Returns true if no process of the round is left, so that no sweep is needed.
  bool last_worker_ended(bool has_children) {
    if (has_children || sweeping_) return false;
    round_is_over_ = true;
    return true;
  }

  // Call this when the coordinator has not answered in time. Another coordinator may lead the job by now, and only the workers
  // of that coordinator's round may run. So all children are killed.
  Orders on_lease_expired() {
    lease_expired_ = true;
    return {.kill_children = true};
  }
  // Call this when the worker lease was extended, or has no time limit any more.
  void on_lease_renewed() { lease_expired_ = false; }

  // Returns true if the round no longer waits for any process. Returns true only once.
  bool take_end_of_round() { return std::exchange(round_is_over_, false); }
  // Returns true if a scan can lead to an order.
  bool needs_scan() const { return sweeping_ || lease_expired_ || !all_.empty(); }
  // Returns true if there are leftovers, all of them from earlier rounds.
  bool has_only_kept() const {
    return !all_.empty() && std::all_of(all_.begin(), all_.end(), [](const auto& one) { return one.second.kept; });
  }

 private:
  struct Leftover {
    int worker = -1;
    bool connected = false;  // connected now or earlier
    bool same_program = false;
    bool holds = false;
    bool handles_sigterm = false;
    bool reached = false;
    bool signalled = false;  // `reached` was set by worker_stopped(), not by an observation
    std::size_t program = 0;
    bool busy = true;
    bool kept = false;  // belongs to an earlier round
    bool named = false;
    std::optional<How> how;  // set by a sweep
    Time kill_delay{0};      // time between SIGTERM, or another signal that reached the process, and SIGKILL
    Time since{0};
    Time born{0};     // start time, computed from the process's age when it was first observed
    Time busy_at{0};  // time when the process was last observed to be busy
    std::optional<Time> terminated{};
    bool killed = false;
  };

  bool starts(const Leftover& one, Time now) const {
    if (now < one.since + kGrace) return true;
    return one.busy && now < one.born + kStarting;
  }

  static bool works(const Leftover& one, Time now) {
    return one.connected || (one.same_program && now >= one.since + kGrace && now < one.busy_at + kIdle);
  }

  // Updates the leftovers from the observations. Processes whose worker is still running are not leftovers yet, so they are
  // ignored.
  void update(const std::vector<Observation>& observed, Time now) {
    std::map<pid_t, Leftover> still;
    for (const Observation& one : observed) {
      const auto found = all_.find(one.pid);
      const auto worker = ended_.find(one.worker);
      const bool is_left = sweeping_ || (worker != ended_.end() && worker->second != Ended::kFailed);
      if (found == all_.end() && !is_left) continue;
      Leftover left = found != all_.end() ? found->second
                                          : Leftover{.worker = one.worker,
                                                     .how = sweeping_ ? std::optional(order_.how) : std::nullopt,
                                                     .kill_delay = order_.timeout,
                                                     .since = now,
                                                     .born = now - one.age,
                                                     .busy_at = now};
      left.same_program = one.same_program;
      left.connected = left.connected || one.connected;
      if (one.busy) left.busy_at = now;
      left.holds = left.holds || one.holds;
      // A process that a shell has just forked still has the shell's handlers, so it seems to handle the signal. When it
      // executes its own program, it has the default actions again.
      left.reached = one.reached || left.signalled || (left.reached && left.program == one.program);
      left.program = one.program;
      left.busy = one.busy;
      left.handles_sigterm = one.handles_sigterm;
      still.emplace(one.pid, left);
    }
    all_ = std::move(still);
  }

  static Time next_scan(const Leftover& one, Time now) { return now < one.since + kGrace ? one.since + kGrace : now + kGrace; }

  void end(pid_t pid, Leftover& one, Orders& orders, Time now) {
    const auto scan_at = [&](Time when) { orders.scan_at = orders.scan_at ? std::min(*orders.scan_at, when) : when; };
    const auto terminate = [&] {
      one.terminated = now;
      orders.terminate.push_back(pid);
    };
    const auto kill_at = [&](Time when) {
      if (one.killed) return;
      if (now < when) return scan_at(when);
      one.killed = true;
      orders.kill.push_back(pid);
      if (one.how != How::kKill) name(pid, one, orders);
    };
    // After kGrace the process may have executed its own program, so it is examined again at that time.
    if (now < one.since + kGrace) scan_at(one.since + kGrace);
    if (!one.how) {  // no sweep applies to this leftover yet, so its worker may still count as running
      const auto worker = ended_.find(one.worker);
      if (worker == ended_.end()) return;
      if (worker->second == Ended::kStopped) return reach(one, terminate, scan_at, now);
      if (!one.connected && (works(one, now) || starts(one, now))) scan_at(next_scan(one, now));
      return;
    }
    switch (*one.how) {
      case How::kKill:
        return kill_at(now);
      case How::kStop:
        reach(one, terminate, scan_at, now);
        return kill_at(deadline_);
      case How::kDone:
        if (one.connected) return;
        if (works(one, now) || starts(one, now)) return scan_at(next_scan(one, now));
        break;
      case How::kEnd:
        break;
    }
    if (one.reached && !one.terminated) return kill_at(one.since + one.kill_delay);
    if (!one.terminated) {
      if (now < one.since + kGrace) return scan_at(one.since + kGrace);
      if (!one.handles_sigterm) one.kill_delay = std::min(one.kill_delay, kGrace);
      terminate();
      name(pid, one, orders);
    }
    kill_at(*one.terminated + one.kill_delay);
  }

  // Sends SIGTERM to a leftover that the signal of a stop has not reached, because it is outside of the workers' process
  // groups. If it has a handler, it gets SIGTERM immediately, otherwise only after the grace period: torch_shm_manager, for
  // example, would die before it has removed its files.
  template <class Terminate, class ScanAt>
  static void reach(Leftover& one, const Terminate& terminate, const ScanAt& scan_at, Time now) {
    if (one.reached || one.terminated) return;
    if (!one.handles_sigterm && now < one.since + kGrace) return scan_at(one.since + kGrace);
    terminate();
  }

  static void name(pid_t pid, Leftover& one, Orders& orders) {
    if (!std::exchange(one.named, true)) orders.named.push_back(pid);
  }

  bool sweeping_ = false;
  Order order_;
  Time deadline_{0};
  std::map<pid_t, Leftover> all_;
  std::map<int, Ended> ended_;  // workers of this round that have ended but left processes behind
  bool lease_expired_ = false;
  bool round_is_over_ = false;
};

}  // namespace ddprun::guardian
