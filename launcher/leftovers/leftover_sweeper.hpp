// Passes the /proc state of processes that workers left behind to SweepState, and carries out SweepState's orders: signals,
// and messages to the agent. The guardian owns a LeftoverSweeper, and calls scan() when a child has ended or the timer fires.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/leftovers/leftover_probe.hpp"
#include "launcher/leftovers/sweep_state.hpp"
#include "launcher/machine/kernel_timer.hpp"

namespace ddprun::guardian {

class LeftoverSweeper {
 public:
  struct Guardian {
    virtual std::vector<pid_t> left() const = 0;          // children of the guardian that are not workers, spares or the store
    virtual std::vector<WorkerMark> workers() const = 0;  // workers of this round, including ended ones
    virtual void kill_cgroups() = 0;
    virtual void kill_children() = 0;  // kills all children of the round
    virtual void on_swept() = 0;       // called when the round no longer waits for any leftover process
    virtual void on_leftover_ended(const std::string& name) = 0;

   protected:
    ~Guardian() = default;
  };
  explicit LeftoverSweeper(Guardian& guardian) : guardian_(guardian) { timer_.open(); }

  // Returns a timer descriptor that the caller must watch. -1 means that there is no timer; scans then run only when a child
  // has ended.
  int timer() const { return timer_.fd(); }
  // Call this when a worker's own process has ended. Returns true if the worker still counts as running because of its
  // leftovers.
  bool worker_left(int worker, SweepState::Ended how);
  // Returns true if the worker still counts as running because of its leftovers.
  bool counts_as_running(int worker) const { return state_.counts_as_running(worker, now()); }
  void forget_worker(int worker) { state_.forget_worker(worker); }
  // Returns the leftover process that works for the job in place of the worker's own process; nullopt if there is none.
  std::optional<pid_t> works_for(int worker) const { return state_.works_for(worker, now()); }
  // Sends a signal for a worker whose own process has ended: to the worker's leftovers and all their descendants. `stops` is
  // true if the worker is being stopped.
  void signal(int worker, pid_t group, int signal, bool stops);
  // Sends SIGKILL to all leftovers of a worker.
  void kill_left_by(int worker) const;
  void order(const SweepState::Order& order) { carry_out(state_.ordered(order, read_leftovers(), now())); }
  // Call this when a child has ended or the timer has fired.
  void scan();
  void on_lease_expired() { carry_out(state_.on_lease_expired()); }
  SweepState& state() { return state_; }

 private:
  struct Cpu {
    std::int64_t ticks = 0;
    SweepState::Time at{0};
    bool busy = true;
  };
  static SweepState::Time now();
  std::vector<SweepState::Observation> read_leftovers();
  bool is_busy(pid_t pid, std::int64_t ticks);
  void carry_out(const SweepState::Orders& orders);

  Guardian& guardian_;
  SweepState state_;
  std::map<pid_t, Cpu> cpu_;
  KernelTimer timer_{CLOCK_MONOTONIC};
};

}  // namespace ddprun::guardian
