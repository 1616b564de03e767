// Feeds SweepState with what /proc says of the processes that workers leave behind, and carries its orders out: signals, and
// lines for the agent. The guardian owns one, calls look() when a child has ended or the timer fires, and keeps its events.
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
    std::function<std::vector<WorkerMark>()> workers;  // of this round, ended ones included
    std::function<void()> kill_cgroups;
    std::function<void()> kill_children;                 // all of the round
    std::function<void()> swept;                         // nothing is left that must be awaited
    std::function<void(const std::string& name)> ended;  // this leftover was ended
  };
  explicit Keeper(Hooks hooks) : hooks_(std::move(hooks)) {}
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // A timer, to be watched; -1: there is none, and only deaths of children lead to looks.
  int timer();
  // The process of a worker has ended. True: the worker still counts as running, because of what it has left.
  bool worker_left(int worker, SweepState::Ended how);
  // Asks again. False: it has ended.
  bool keeps(int worker) const { return state_.keeps(worker, now()); }
  void forget_worker(int worker) { state_.forget_worker(worker); }
  // The leftover that works for the job in the place of a worker.
  std::optional<pid_t> works_for(int worker) const { return state_.works_for(worker, now()); }
  // A signal to a worker whose own process has ended: what it has left gets it, and all below. `stops`: its job is being
  // stopped.
  void signal(int worker, pid_t group, int signal, bool stops);
  // SIGKILL to all that a worker has left.
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
