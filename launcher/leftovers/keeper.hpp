// Feeds SweepState with the state in /proc of the processes that workers leave behind, and carries out its orders: signals, and
// messages to the agent. The guardian owns one, and calls look() when a child has ended or the timer fires.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/leftovers/leftover_look.hpp"
#include "launcher/leftovers/sweep_state.hpp"

namespace ddprun::guardian {

class Keeper {
 public:
  struct Hooks {
    std::function<std::vector<pid_t>()> left;          // children that are neither workers nor spares nor the store
    std::function<std::vector<WorkerMark>()> workers;  // workers of this round, including ended ones
    std::function<void()> kill_cgroups;
    std::function<void()> kill_children;                 // all children of the round
    std::function<void()> swept;                         // no leftover is left that must be awaited
    std::function<void(const std::string& name)> ended;  // this leftover was ended
  };
  explicit Keeper(Hooks hooks) : hooks_(std::move(hooks)) {}
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // A timer descriptor that the caller must watch. -1: there is no timer, and only deaths of children lead to looks.
  int timer();
  // The process of a worker has ended. True: the worker still counts as running because of its leftovers.
  bool worker_left(int worker, SweepState::Ended how);
  // The same question again, later. False: the worker has ended.
  bool keeps(int worker) const { return state_.keeps(worker, now()); }
  void forget_worker(int worker) { state_.forget_worker(worker); }
  // The leftover that works for the job instead of the worker's own process.
  std::optional<pid_t> works_for(int worker) const { return state_.works_for(worker, now()); }
  // Sends a signal for a worker whose own process has ended. Its leftovers and all their descendants get it. `stops`: the
  // worker is being stopped.
  void signal(int worker, pid_t group, int signal, bool stops);
  // Sends SIGKILL to all leftovers of a worker.
  void kill_left_by(int worker) const;
  void order(const SweepState::Order& order) { carry_out(state_.ordered(order, see(), now())); }
  // A child has ended, or the timer fired.
  void look();
  void grant_ended() { carry_out(state_.grant_ended()); }
  SweepState& state() { return state_; }

 private:
  struct Cpu {
    std::int64_t ticks = 0;
    SweepState::Time at{0};
    bool busy = true;
  };
  static SweepState::Time now();
  std::vector<SweepState::Seen> see();
  bool is_busy(pid_t pid, std::int64_t ticks);
  void carry_out(const SweepState::Orders& orders);
  void set_timer(std::optional<SweepState::Time> when);

  Hooks hooks_;
  SweepState state_;
  std::map<pid_t, Cpu> cpu_;
  int timer_ = -1;
};

}  // namespace ddprun::guardian
