// Accounts the wall time of a run by category, from the agent's events: waiting for nodes, starting, training, evaluating,
// pausing for checkpoints, restarting. The report keeps one account over all invocations of a run and writes its sums. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "launcher/events/run_event.hpp"

namespace ddprun {

class TimeAccount {
 public:
  // "waiting": for other nodes before the first round. "start": from then until that round trains. "training": while a round
  // trains, without evaluations and pauses for checkpoints. "restart": from a failure until the next round trains.
  enum class Part { kWaiting, kStart, kTraining, kEvaluation, kCheckpoint, kRestart };
  static constexpr std::array kNames{"waiting_s", "start_s", "training_s", "evaluation_s", "checkpoint_s", "restart_s"};
  using Seconds = std::array<double, kNames.size()>;

  // The current round, as its ranks on this node report it. An unknown step is -1.
  struct Round {
    std::int64_t from_step = -1;     // number of finished steps when training began
    std::int64_t reached_step = -1;  // the highest step that a rank has reported
    double trained_s = 0;
  };

  explicit TimeAccount(const Seconds& earlier = {}) : seconds_(earlier) {}

  // RunEnded counts the time up to it; events that do not affect the accounting are ignored. Events take their times from the
  // wall clock. `clock_was_set_ns`: by how much that clock has been changed since the first event. `latest_ns`: the current
  // time of that clock without those changes. The clock may be changed between an event and this call, so no time is counted
  // before the last event or after now.
  void on(const RunEvent& event, std::int64_t clock_was_set_ns = 0,
          std::int64_t latest_ns = std::numeric_limits<std::int64_t>::max());

  const Seconds& seconds() const { return seconds_; }
  const Round& round() const { return round_; }

 private:
  void add(const RunStarted& event);
  void add(const RoundStarted& event);
  void add(const WorkerStarted& event);
  void add(const WorkerSpoke& event);
  void add(const RoundFailed& event);
  void add(const CutOff& event) { count(Part::kWaiting, event.time_ns); }
  void add(const RunEnded& event);

  void hear(const channel::PhaseChange& phase, const WorkerSpoke& event);
  void hear(const channel::Progress& progress, const WorkerSpoke& event);

  bool runs() const { return part_ == Part::kTraining || part_ == Part::kEvaluation || part_ == Part::kCheckpoint; }
  void count(Part next, std::int64_t time_ns);

  Seconds seconds_;
  Round round_;
  Part part_ = Part::kWaiting;
  std::int64_t since_ns_ = 0;  // wall clock without later changes; 0 before RunStarted
  std::int64_t clock_was_set_ns_ = 0;
  std::int64_t latest_ns_ = 0;
  bool speaks_ = false;  // a worker uses the channel, so its phase messages show when the round trains
  bool first_round_ = true;
  int first_rank_here_ = -1;
  std::size_t started_ = 0;
  std::size_t workers_here_ = 0;
};

}  // namespace ddprun
