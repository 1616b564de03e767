// Where a run's time goes, from the agent's events: waiting for nodes, starting, training, evaluating, standing still for
// checkpoints, restarting. The report keeps one over all invocations of a run and writes its sums. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "launcher/events/run_event.hpp"

namespace ddprun {

class TimeAccount {
 public:
  // "waiting" for other nodes before the first round, "start" until that runs, "training" while it runs, but for evaluations
  // and for the time that it stands still for checkpoints, "restart" from a failure until it runs again.
  enum class Part { kWaiting, kStart, kTraining, kEvaluation, kCheckpoint, kRestart };
  static constexpr std::array kNames{"waiting_s", "start_s", "training_s", "evaluation_s", "checkpoint_s", "restart_s"};
  using Seconds = std::array<double, kNames.size()>;

  // The current round, as its ranks here tell it. Steps are -1 while they are not known.
  struct Round {
    std::int64_t from_step = -1;     // finished when it began to train
    std::int64_t reached_step = -1;  // the farthest that was heard of
    double trained_s = 0;
  };

  explicit TimeAccount(const Seconds& earlier = {}) : seconds_(earlier) {}

  // RunEnded counts the time up to it; other events that say nothing about time are passed over. `clock_was_set_ns`: how far
  // the wall clock, whose times events have, has been set since the first one.
  void on(const RunEvent& event, std::int64_t clock_was_set_ns = 0);

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
  std::int64_t since_ns_ = 0;  // as the clock went at first; 0: before RunStarted
  std::int64_t clock_was_set_ns_ = 0;
  bool speaks_ = false;  // some worker uses the channel, so phases tell when it runs
  bool first_round_ = true;
  int first_rank_here_ = -1;
  std::size_t started_ = 0;
  std::size_t workers_here_ = 0;
};

}  // namespace ddprun
