// Divides the wall time of a run into parts, from the agent's events: waiting for nodes, starting, training, evaluating,
// checkpoint pauses, and restarting. Example: a job waits 2 s for nodes, starts for 3 s, trains for 100 s, fails, and trains
// again 5 s later. Then waiting_s is 2, start_s 3, training_s 100 and restart_s 5. The report uses one account over all
// invocations of a run and contains its sums. The code is pure: no I/O, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "launcher/events/run_event.hpp"

namespace ddprun {

class TimeAccount {
 public:
  // kWaiting: waiting for other nodes before a round. kStart: from the end of that wait until the first round trains.
  // kTraining: a round trains, except for evaluations and pauses for checkpoints. kRestart: from a failure until the next round
  // trains.
  enum class Part { kWaiting, kStart, kTraining, kEvaluation, kCheckpoint, kRestart };
  static constexpr std::array kNames{"waiting_s", "start_s", "training_s", "evaluation_s", "checkpoint_s", "restart_s"};
  using Seconds = std::array<double, kNames.size()>;

  // The current round, as its ranks on this node have reported it. -1 means an unknown step.
  struct Round {
    std::int64_t from_step = -1;     // number of steps finished before this round started training
    std::int64_t reached_step = -1;  // the highest step reported by a rank
    double trained_s = 0;
  };

  explicit TimeAccount(const Seconds& earlier = {}) : seconds_(earlier) {}

  // Adds the time up to the event to the current part. Events that start no new part are ignored; RunEnded ends the last part.
  //
  // Event times come from the wall clock, which users or NTP may set while the job runs. `clock_was_set_ns` is the amount by
  // which the clock has been set forward since the first event; it is subtracted. `latest_ns` is the current wall time without
  // that amount. The clock may even be set between an event and this call. So the corrected time of an event is limited to the
  // range from the previous event to `latest_ns`.
  void on(const RunEvent& event, std::int64_t clock_was_set_ns = 0,
          std::int64_t latest_ns = std::numeric_limits<std::int64_t>::max());

  const Seconds& seconds() const { return seconds_; }
  // Returns the sums up to a time between two events. The arguments have the same meaning as in on(). The account does not
  // change.
  Seconds seconds_at(std::int64_t time_ns, std::int64_t clock_was_set_ns) const;
  const Round& round() const { return round_; }

 private:
  void add(const RunStarted& event);
  void add(const RoundStarted& event);
  void add(const WorkerStarted& event);
  void add(const WorkerReported& event);
  void add(const RoundFailed& event);
  void add(const CutOff& event) { count(Part::kWaiting, event.time_ns); }
  void add(const RunEnded& event);

  void on_message(const channel::PhaseChange& phase, const WorkerReported& event);
  void on_message(const channel::Progress& progress, const WorkerReported& event);

  bool runs() const { return part_ == Part::kTraining || part_ == Part::kEvaluation || part_ == Part::kCheckpoint; }
  void count(Part next, std::int64_t time_ns);

  Seconds seconds_;
  Round round_;
  Part part_ = Part::kWaiting;
  std::int64_t since_ns_ = 0;  // start of the current part, in wall time without changes of the clock; 0 before RunStarted
  std::int64_t clock_was_set_ns_ = 0;
  std::int64_t latest_ns_ = 0;
  bool uses_channel_ = false;  // a worker has used the channel, so phase messages show when the round trains
  bool first_round_ = true;
  int first_rank_here_ = -1;
  std::size_t started_ = 0;
  std::size_t workers_here_ = 0;
};

}  // namespace ddprun
