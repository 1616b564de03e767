// Stops the workers at the end of a round (one start of all workers) or of the job. Records the reason, the orders that were
// sent to the workers, and the deadline. AgentState decides when workers save or stop, and this class creates the orders. The
// code is pure: no I/O, no clock.
//
// The problem. A stop has three steps. Workers that can save agree on a step and save (order_save). Workers that cannot save,
// or take too long, get a signal (order_stop). Workers that ignore the signal get SIGKILL (kill_all). Afterwards the processes
// that the workers left behind are ended (sweep_order). Several reasons for a stop may overlap: a SIGTERM arrives while workers
// stop after a failure, the coordinator ends the job while workers save, the agent itself fails. So each reason is recorded,
// and job_ending.hpp uses all of them when the job ends.
//
// An example with --shutdown-timeout 20: a SIGTERM arrives. The workers have 15 s to save, and 5 s to stop if they did not
// save.
//
//     order_save({0, 1})             Stop{save} to both ranks, timer kSave 15 s
//     on_ready(0, 40) (1, 41)        all ranks have replied: StopAt{41}, the largest step that a rank has started
//     order_stop(SIGTERM, 5 s)       the timer has fired: Stop{now}, SIGTERM, timer kKill 5 s
//     kill_all()                     the timer has fired: SIGKILL
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent_state/round_workers.hpp"

namespace ddprun {

// The ranks of a round agree on the step at which all of them stop and save. Each rank replies to Stop{save} with the number
// of steps that it has started. It starts no other step until it knows the agreed step. The agreed step is the largest of
// these numbers, since every rank can reach it.
class StopAgreement {
 public:
  // `ranks` are the ranks of the workers that received Stop{save} and have not finished the job.
  explicit StopAgreement(std::set<int> ranks) : awaited_(std::move(ranks)) {}

  // Call this when the rank has replied. Repeated replies have no effect.
  void ready(int rank, std::int64_t started) {
    if (awaited_.erase(rank) > 0) started_.emplace(rank, started);
  }
  // Call this when the rank has finished the job or is about to finish it. Its reply is then not needed.
  void left(int rank) { awaited_.erase(rank); }

  // Returns the agreed step, which does not change once it is known. Returns nullopt while a reply is missing, and also if all
  // ranks have finished without a reply.
  std::optional<std::int64_t> step() const {
    if (!awaited_.empty() || started_.empty()) return std::nullopt;
    std::int64_t largest = 0;
    for (const auto& [rank, started] : started_) largest = std::max(largest, started);
    return largest;
  }

 private:
  std::set<int> awaited_;
  std::map<int, std::int64_t> started_;
};

// The part of a stop's state that is reset when a new round starts.
struct RoundStop {
  int deferred_signal = 0;  // signal of a stop that is deferred until the regroup has ended; 0: none
  std::optional<std::chrono::steady_clock::time_point> deferred_since{};
  std::optional<StopAgreement> agreement{};  // set if workers were ordered to save at a common step
  std::optional<std::int64_t> agreed_step{};
  // true: the workers save without a lost worker; on one machine this is set only if no signal stops the job.
  bool without_lost = false;
  bool ordered = false;          // workers were ordered to stop or were killed, possibly before they could save
  bool self_preempted = false;   // a worker exited with kPreempted although it was not ordered to stop
  bool cut_off = false;          // the coordinator does not answer, and the event CutOff was emitted
  bool fell_back = false;        // a regroup failed; its restart was already counted when the worker was lost
  bool kills_leftovers = false;  // a second Ctrl-C arrived during the sweep: kill the processes that workers left behind
  std::optional<std::chrono::steady_clock::time_point> deadline{};  // time at which SIGKILL is sent
};

class StopInProgress {
 public:
  StopInProgress(const AgentSettings& settings, RoundWorkers& workers, AgentTurn& turn)
      : settings_(settings), workers_(workers), turn_(turn) {}

  // Returns the part of the shutdown timeout that is reserved for stopping workers that could not save.
  std::chrono::milliseconds reserve() const {
    return std::min(settings_.shutdown_timeout / 4, std::chrono::milliseconds{5000});
  }

  // Orders the workers in `ranks` to agree on a step and save. If the stop was deferred until a regroup ended, the time for the
  // save is shorter by this delay.
  void order_save(const std::vector<int>& ranks);
  // Call this for each StopReady message. `started` is the number of steps that the rank has started.
  void on_ready(int rank, std::int64_t started);
  void leave(int rank);  // the rank has finished or saved, so its StopReady is not awaited
  void agree_on(std::int64_t step);
  // Sends the Stop message again. Call this when a worker reports a signal although it is already stopping.
  void repeat_order(int rank, channel::Stop::Mode mode);

  // Orders all workers to stop without saving. SIGKILL follows after `grace`.
  void order_stop(int signal_to_send, std::chrono::milliseconds grace);
  void kill_all();
  // Returns the action that ends the processes which the workers left behind. The caller sets its field next_round.
  agent_action::Sweep sweep_order();

  int signal = 0;                                         // the first signal that requested the end of the job; 0: none
  std::optional<agent_event::JobEnded> job_over;          // set if the coordinator has ended the job
  std::optional<agent_event::AgentFailed> agent_failure;  // a failure of the agent itself, which ends the job
  std::string reason;                                     // reason of the current stop, for the Stop message to the workers
  RoundStop round;                                        // reset when a round starts

 private:
  void announce_step();
  void send_agreed_step(std::vector<int> ranks);
  void send_stop(std::vector<int> ranks, channel::Stop::Mode mode, std::chrono::milliseconds deadline);

  const AgentSettings& settings_;
  RoundWorkers& workers_;
  AgentTurn& turn_;
};

}  // namespace ddprun
