// Decides when to wait for, terminate or kill the processes that workers leave behind, as a pure state machine. The guardian
// reports the processes that it sees and the time; orders come out. launcher/leftovers/keeper.hpp feeds it and carries the
// orders out.
//
// The problem. A worker starts other processes, and some of these leftovers outlive it. Python's resource tracker removes
// shared memory when its parent has ended. A start script dies of a signal while its trainer still saves. A start script starts
// the trainer in the background and exits. The guardian is a subreaper, so it becomes the parent of all of them. If it killed
// them immediately, shared memory would leak and saves would be lost. If it waited for all of them, a forgotten daemon would
// keep the job from ending.
//
// The rules.
//   A worker that the agent stops has ended when all its leftovers have ended. The agent's own deadline kills it and them.
//   A worker that exits with 0 has ended when no leftover works for the job. A leftover works for the job if it is connected to
//   the store or the worker channel, or if it runs the worker's own program. A leftover has kGrace to connect, and more time
//   while it is busy starting. The program counts only after kGrace, since a process that a shell has just forked still has the
//   shell's command line. It counts until the leftover was idle for kIdle: a loop that a start script left in the background
//   must not keep the job from ending.
//   A worker that fails has ended immediately.
//   When all workers have ended, the agent orders a sweep. Leftovers have kGrace to end, then get SIGTERM, then SIGKILL. A
//   leftover that handles SIGTERM, or has received a signal before, may be saving: it has the shutdown timeout before SIGKILL.
//   The next round waits only for leftovers that hold a resource that it needs.
//
//     round runs -- sweep is ordered --> sweeping, until no leftover must be awaited -------> round is over
//     round runs -- the last child was a worker ------------------------------------------> round is over, without a sweep
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace ddprun::guardian {

class SweepState {
 public:
  using Time = std::chrono::milliseconds;   // of a monotonic clock
  static constexpr Time kGrace{1000};       // for a leftover to end by itself; also the time between two looks
  static constexpr Time kStarting{60'000};  // a process up to this age may still be loading its libraries
  static constexpr Time kIdle{60'000};      // a leftover that is not connected does no work if it is idle for this long

  enum class How : std::int32_t {
    kKill,  // SIGKILL now
    kStop,  // the job is being stopped: leftovers have the rest of the stop time
    kEnd,   // the round failed
    kDone,  // all workers exited with 0: leftovers that work for the job continue
  };
  struct Order {
    How how = How::kKill;
    Time timeout{0};          // kStop: the rest of the stop time; kEnd, kDone: from SIGTERM to SIGKILL
    bool next_round = false;  // another round follows, which waits only for leftovers that hold its resources
  };
  // A child of the guardian that is neither a worker nor a spare nor the store.
  struct Seen {
    pid_t pid = 0;
    int worker = -1;            // the number of the worker that left it; -1: unknown
    bool connected = false;     // to the job's store or channel
    bool same_program = false;  // runs the worker's own program
    bool holds = false;         // it holds a resource that the next round may need: a device, a port
    bool catches = false;       // it has a handler for SIGTERM
    bool reached = false;       // a signal to its worker has reached it too
    bool busy = false;          // it has used CPU time since the previous look
    Time age{0};
  };
  // How a worker with leftovers ended.
  enum class Ended { kStopped, kDone, kFailed };
  struct Orders {
    bool kill_cgroups = false;
    bool kill_children = false;  // all children of the round
    bool swept = false;          // report to the agent that the sweep is over
    std::vector<pid_t> terminate{};
    std::vector<pid_t> kill{};
    std::vector<pid_t> named{};     // these were ended and are named in a message to the user
    std::optional<Time> look_at{};  // time of the next look
  };

  // A worker with leftovers has ended. Records the leftovers; call step() for the orders.
  void worker_left(int worker, Ended how, const std::vector<Seen>& seen, Time now) {
    ended_[worker] = how;
    see(seen, now);
  }
  // The agent stops a worker whose own process has ended. `reaches`: its leftovers have got the signal and do not ignore it.
  void worker_stopped(int worker, bool reaches) {
    if (const auto found = ended_.find(worker); found != ended_.end()) found->second = Ended::kStopped;
    for (auto& [pid, one] : all_) {
      if (one.worker == worker && reaches) one.reached = true;
    }
  }
  // True if a worker whose process has ended still counts as running because of its leftovers.
  bool keeps(int worker, Time now) const {
    const auto found = ended_.find(worker);
    if (found == ended_.end() || found->second == Ended::kFailed) return false;
    for (const auto& [pid, one] : all_) {
      if (one.worker == worker && (found->second == Ended::kStopped || works(one, now) || starts(one, now))) return true;
    }
    return false;
  }
  void forget_worker(int worker) { ended_.erase(worker); }
  // The leftovers of a worker, also of one whose end is not reported yet.
  std::vector<pid_t> left_by(int worker) const {
    std::vector<pid_t> pids;
    for (const auto& [pid, one] : all_) {
      if (one.worker == worker) pids.push_back(pid);
    }
    return pids;
  }
  // The first leftover of that worker that works for the job.
  std::optional<pid_t> works_for(int worker, Time now) const {
    for (const auto& [pid, one] : all_) {
      if (one.worker == worker && works(one, now)) return pid;
    }
    return std::nullopt;
  }

  // The agent orders a sweep; a later order replaces an earlier one.
  Orders ordered(const Order& order, const std::vector<Seen>& seen, Time now) {
    sweeping_ = true;
    order_ = order;
    deadline_ = now + order.timeout;
    see(seen, now);
    for (auto& [pid, one] : all_) {
      if (one.kept && order.how != How::kKill) continue;
      one.how = order.how;
      one.patience = order.timeout;
    }
    Orders orders = step(seen, now);
    orders.kill_cgroups = order.how == How::kKill;
    return orders;
  }

  // `seen` are the leftovers that exist now. Call it when a child has ended, and at Orders::look_at.
  Orders step(const std::vector<Seen>& seen, Time now) {
    see(seen, now);
    Orders orders;
    orders.kill_children = overdue_ || (sweeping_ && order_.how == How::kKill && !all_.empty());
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

  // The last worker was reaped. True if no process of the round is left, so no sweep is needed.
  bool last_worker_ended(bool has_children) {
    if (has_children || sweeping_) return false;
    round_is_over_ = true;
    return true;
  }

  // The coordinator has not answered in time. Another one may lead the job by now, and only its workers may run.
  Orders grant_ended() {
    overdue_ = true;
    return {.kill_children = true};
  }
  // The grant was extended, or no longer has an end.
  void grant_renewed() { overdue_ = false; }

  // True if the round has no more process that must be awaited. Returns true only once.
  bool take_end_of_round() { return std::exchange(round_is_over_, false); }
  // True if a look can lead to an order.
  bool looks() const { return sweeping_ || overdue_ || !all_.empty(); }
  // True if there are leftovers, all of them from earlier rounds.
  bool has_only_kept() const {
    return !all_.empty() && std::all_of(all_.begin(), all_.end(), [](const auto& one) { return one.second.kept; });
  }

 private:
  struct Leftover {
    int worker = -1;
    bool connected = false;  // now or earlier
    bool same_program = false;
    bool holds = false;
    bool catches = false;
    bool reached = false;
    bool busy = true;
    bool kept = false;  // from an earlier round
    bool named = false;
    std::optional<How> how;  // set by a sweep
    Time patience{0};        // from SIGTERM, or the signal that reached it, to SIGKILL
    Time since{0};
    Time born{0};     // computed from its age when it was first seen
    Time busy_at{0};  // when it was last seen to be busy
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

  // Ignores processes whose worker still runs, since these are not leftovers yet.
  void see(const std::vector<Seen>& seen, Time now) {
    std::map<pid_t, Leftover> still;
    for (const Seen& one : seen) {
      const auto found = all_.find(one.pid);
      const auto worker = ended_.find(one.worker);
      const bool is_left = sweeping_ || (worker != ended_.end() && worker->second != Ended::kFailed);
      if (found == all_.end() && !is_left) continue;
      Leftover left = found != all_.end() ? found->second
                                          : Leftover{.worker = one.worker,
                                                     .how = sweeping_ ? std::optional(order_.how) : std::nullopt,
                                                     .patience = order_.timeout,
                                                     .since = now,
                                                     .born = now - one.age,
                                                     .busy_at = now};
      left.same_program = one.same_program;
      left.connected = left.connected || one.connected;
      if (one.busy) left.busy_at = now;
      left.holds = left.holds || one.holds;
      left.reached = left.reached || one.reached;
      left.busy = one.busy;
      left.catches = one.catches;
      still.emplace(one.pid, left);
    }
    all_ = std::move(still);
  }

  static Time next_look(const Leftover& one, Time now) { return now < one.since + kGrace ? one.since + kGrace : now + kGrace; }

  void end(pid_t pid, Leftover& one, Orders& orders, Time now) {
    const auto look_at = [&](Time when) { orders.look_at = orders.look_at ? std::min(*orders.look_at, when) : when; };
    const auto terminate = [&] {
      one.terminated = now;
      orders.terminate.push_back(pid);
    };
    const auto kill_at = [&](Time when) {
      if (one.killed) return;
      if (now < when) return look_at(when);
      one.killed = true;
      orders.kill.push_back(pid);
      if (one.how != How::kKill) name(pid, one, orders);
    };
    if (!one.how) {  // no sweep has begun: its worker counts as running
      const auto worker = ended_.find(one.worker);
      if (worker == ended_.end()) return;
      if (worker->second == Ended::kStopped) return reach(one, terminate, look_at, now);
      if (!one.connected && (works(one, now) || starts(one, now))) look_at(next_look(one, now));
      return;
    }
    switch (*one.how) {
      case How::kKill:
        return kill_at(now);
      case How::kStop:
        reach(one, terminate, look_at, now);
        return kill_at(deadline_);
      case How::kDone:
        if (one.connected) return;
        if (works(one, now) || starts(one, now)) return look_at(next_look(one, now));
        break;
      case How::kEnd:
        break;
    }
    if (one.reached && !one.terminated) return kill_at(one.since + one.patience);
    if (!one.terminated) {
      if (now < one.since + kGrace) return look_at(one.since + kGrace);
      if (!one.catches) one.patience = std::min(one.patience, kGrace);
      terminate();
      name(pid, one, orders);
    }
    kill_at(*one.terminated + one.patience);
  }

  // A stop sends its signal to the process groups of the workers. A leftover outside of these groups gets SIGTERM here. If it
  // has a handler, it gets SIGTERM immediately. Otherwise it gets SIGTERM after the grace period, since torch_shm_manager would
  // die before it has removed its files.
  template <class Terminate, class LookAt>
  static void reach(Leftover& one, const Terminate& terminate, const LookAt& look_at, Time now) {
    if (one.reached || one.terminated) return;
    if (!one.catches && now < one.since + kGrace) return look_at(one.since + kGrace);
    terminate();
  }

  static void name(pid_t pid, Leftover& one, Orders& orders) {
    if (!std::exchange(one.named, true)) orders.named.push_back(pid);
  }

  bool sweeping_ = false;
  Order order_;
  Time deadline_{0};
  std::map<pid_t, Leftover> all_;
  std::map<int, Ended> ended_;  // workers of this round that have ended with leftovers
  bool overdue_ = false;
  bool round_is_over_ = false;
};

}  // namespace ddprun::guardian
