#include "launcher/report/time_account.hpp"

#include <algorithm>
#include <variant>

#include "common/base/overloaded.hpp"

namespace ddprun {

void TimeAccount::on(const RunEvent& event, std::int64_t clock_was_set_ns, std::int64_t latest_ns) {
  clock_was_set_ns_ = clock_was_set_ns;
  latest_ns_ = latest_ns;
  std::visit(Overloaded{[this](const RunStarted& e) { add(e); }, [this](const RoundStarted& e) { add(e); },
                        [this](const WorkerStarted& e) { add(e); }, [this](const WorkerReported& e) { add(e); },
                        [this](const RoundFailed& e) { add(e); }, [this](const CutOff& e) { add(e); },
                        [this](const RunEnded& e) { add(e); },
                        Ignored<NodesChanged, WorkerEnded, WorkerContinued, Straggler, Regrouped, RegroupFailed, StandbyWaits,
                                StandbyEnded, StopRequested, StopIsSlow, WorkersLeft, LeftoversFound, HelperIgnored,
                                InputWasRead, FirstOutput, RunDirectoryRemoved>{}},
             event);
}

void TimeAccount::count(Part next, std::int64_t time_ns) {
  const std::int64_t now_ns = std::max(since_ns_, std::min(time_ns - clock_was_set_ns_, latest_ns_));
  if (since_ns_ != 0 && now_ns > since_ns_) {
    const double passed = static_cast<double>(now_ns - since_ns_) / 1e9;
    seconds_[static_cast<std::size_t>(part_)] += passed;
    if (part_ == Part::kTraining) round_.trained_s += passed;
  }
  part_ = next;
  since_ns_ = now_ns;
}

TimeAccount::Seconds TimeAccount::seconds_at(std::int64_t time_ns, std::int64_t clock_was_set_ns) const {
  TimeAccount account = *this;
  account.clock_was_set_ns_ = clock_was_set_ns;
  account.latest_ns_ = std::numeric_limits<std::int64_t>::max();
  account.count(part_, time_ns);
  return account.seconds_;
}

void TimeAccount::add(const RunStarted& event) {
  part_ = Part::kWaiting;
  since_ns_ = event.time_ns;
}

void TimeAccount::add(const RoundStarted& event) {
  if (part_ == Part::kWaiting) count(Part::kStart, event.time_ns);
  first_round_ = event.restart_count == 0;
  round_ = {};
  first_rank_here_ = -1;
  started_ = 0;
  workers_here_ = static_cast<std::size_t>(event.workers_here > 0 ? event.workers_here : event.world_size);
}

void TimeAccount::add(const WorkerStarted& event) {
  if (first_rank_here_ < 0 || event.rank < first_rank_here_) first_rank_here_ = event.rank;
  // Until a worker uses the worker channel, all workers count as training as soon as they have started.
  if (++started_ == workers_here_ && !uses_channel_) count(Part::kTraining, event.time_ns);
}

void TimeAccount::add(const WorkerReported& event) {
  // The first message over the channel proves that the workers report their phases. The workers have started but do not train
  // yet, so the time so far belongs to the start.
  if (!uses_channel_ && part_ == Part::kTraining) {
    part_ = first_round_ ? Part::kStart : Part::kRestart;
    round_.trained_s = 0;
  }
  uses_channel_ = true;
  std::visit(Overloaded{[&](const channel::PhaseChange& message) { on_message(message, event); },
                        [&](const channel::Progress& message) { on_message(message, event); },
                        Ignored<channel::Hello, channel::EvalResult, channel::Pace, channel::WorkerError,
                                channel::CheckpointPublished, channel::SignalReceived, channel::StopReady, channel::SavesOnStop,
                                channel::Regroupable, channel::RegroupReady, channel::GroupFormed, channel::StandbyReady,
                                channel::Position, channel::StoreRequest>{}},
             event.message);
}

// A round starts training when any of its ranks reports kRunning. From then on only the lowest rank on this node is observed.
// This is enough, since the ranks wait for each other in every step.
void TimeAccount::on_message(const channel::PhaseChange& phase, const WorkerReported& event) {
  round_.reached_step = std::max(round_.reached_step, phase.step);
  if (phase.phase == channel::Phase::kRunning && !runs()) {
    count(Part::kTraining, event.time_ns);
    round_.from_step = phase.step;
  }
  if (!runs() || event.rank != first_rank_here_) return;
  if (phase.phase == channel::Phase::kRunning) count(Part::kTraining, event.time_ns);
  if (phase.phase == channel::Phase::kEvaluating) count(Part::kEvaluation, event.time_ns);
  if (phase.phase == channel::Phase::kSaving) count(Part::kCheckpoint, event.time_ns);
}

void TimeAccount::on_message(const channel::Progress& progress, const WorkerReported& event) {
  if (!runs()) count(Part::kTraining, event.time_ns);
  round_.reached_step = std::max(round_.reached_step, progress.step);
}

void TimeAccount::add(const RoundFailed& event) {
  count(Part::kRestart, event.first.time_ns - clock_was_set_ns_ > since_ns_ ? event.first.time_ns : event.time_ns);
  round_.reached_step = std::max(round_.reached_step, event.first.step);
}

void TimeAccount::add(const RunEnded& event) {
  count(part_, event.time_ns);
}

}  // namespace ddprun
