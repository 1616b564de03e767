// Implementation of agent_state.hpp.
//
// Note [Why this file is long]
// It is one state machine, and every part of it reads and sets the same phase. All its transitions are here, in this order:
//   events              what the shell reports
//   a round             how it starts, stops and is swept
//   a round's end       what follows from its judgement
//   a lost worker       the others stay and a new one joins them: regrouping, standbys
//   orders to a member  many machines: orders of the coordinator, and reports to it
//   holding             a member's workers wait for the next round
#include "launcher/decide/agent_state.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/exit_code.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/signal_name.hpp"
#include "common/channel/version.hpp"
#include "launcher/verdict/job_judge.hpp"

namespace ddprun {
namespace {

using channel::Stop;
using std::chrono::milliseconds;

constexpr int kPreempted = static_cast<int>(ExitCode::kPreempted);

// Part of the stop time that is reserved for stopping workers that could not save.
milliseconds kept_for_stopping(milliseconds total) {
  return std::min(total / 4, milliseconds{5000});
}

constexpr milliseconds kGraceAfterRegroup{5000};  // for workers that did not regroup: most of them hang

constexpr milliseconds kSparesAfter{
    10000};  // from a round's start: a script that prints nothing has loaded its libraries by then

constexpr milliseconds kGraceForHeld{5000};  // held workers only have to finish a checkpoint

}  // namespace

AgentState::AgentState(AgentSettings settings)
    : settings_(settings),
      standbys_(settings.regroup_limit.count() > 0 || keeps_spares() ? settings.standbys : 0, settings.world_size,
                keeps_spares() ? settings.spares_at_once : Standbys::kAll) {
  round_ = settings_.first_round - 1;
  job_world_size_ = settings_.world_size;
}

std::vector<AgentAction> AgentState::on(const AgentEvent& event, Instant now) {
  now_ = now;
  if (phase_ != Phase::kFinished) {
    std::visit([this](const auto& concrete) { handle(concrete); }, event);
  }
  return std::exchange(actions_, {});
}

// ---- events ----

void AgentState::handle(const agent_event::Begin&) {
  check(phase_ == Phase::kIdle, "a job begins while it runs");
  began_ = now_.steady;
  emit(RunStarted{now_.realtime_ns, settings_.world_size});
  if (!member()) start_round();
}

void AgentState::handle(const agent_event::WorkerExited& event) {
  WorkerRecord& ended = worker(event.rank);
  if (!ended.live) return;
  ended.live = false;
  ended.pid = event.pid;
  ended.status = event.status;
  if (settings_.workers_have_channel && event.status.ok() && !ended.said_hello && !ended.asked_to_stop) refuse_silent(ended);
  if (ended.refused && event.status.ok())
    ended.status->code = static_cast<int>(ExitCode::kUsage);  // it exited before our SIGKILL arrived, or never sent a message
  ended.ended_ns = event.time_ns;
  ended.error_file = event.error_file;
  ended.memory = event.memory;
  ended.out_of_memory = event.out_of_memory;
  ended.exception = event.exception;
  if (ended.standby) standbys_.release(*ended.standby);
  if (event.unanswered_s) {  // counts as a stop by us, not as a failure of the worker
    cut_off(*event.unanswered_s);
    ask_to_stop(ended);
    ended.killed = true;
  }
  emit(WorkerEnded{global(event.rank), event.pid, event.status, ended.asked_to_stop, event.time_ns});
  worker_gone(event.rank);
}

// A worker that never used the channel cannot have trained: ddptrain reaches its store only over the channel.
void AgentState::refuse_silent(WorkerRecord& ended) {
  if (ended.refused) return;
  ended.refused = true;
  ended.error = channel::WorkerError{
      .kind = channel::ErrorKind::kUsage,
      .message =
          "it ended with 0 and had said nothing on the worker channel, so nothing was trained. A train.json needs "
          "ddptrain, or a program that is built with ddprun's library; any other program is started without one",
      .step = -1,
      .time_ns = now_.realtime_ns};
}

void AgentState::handle(const agent_event::SpawnFailed& event) {
  WorkerRecord& ended = worker(event.rank);
  if (!ended.live) return;
  ended.live = false;
  if (ended.standby) standbys_.release(*ended.standby);
  ended.spawn_error = event.message;
  ended.spawn_errno = event.error;
  ended.ended_ns = event.time_ns;
  worker_gone(event.rank);
}

void AgentState::handle(const agent_event::WorkerSaid& event) {
  WorkerRecord& speaker = worker(event.rank);
  const bool as_this_rank = !std::holds_alternative<channel::Hello>(event.message);  // a standby's Hello may arrive late
  speaker.heard = speaker.heard || as_this_rank;
  std::visit(
      Overloaded{
          [&](const channel::SavesOnStop&) { speaker.saves_on_stop = true; },
          [&](const channel::Regroupable&) { regroupable_ = true; },
          [&](const channel::Progress& progress) { speaker.step = std::max(speaker.step, progress.step); },
          [&](const channel::CheckpointPublished& published) {
            newest_checkpoint_ = std::max(newest_checkpoint_, published.step);
          },
          [&](const channel::Hello& message) { hear(event.rank, message); },
          [&](const channel::PhaseChange& message) { hear(event.rank, message); },
          [&](const channel::SignalReceived& message) { hear(event.rank, message); },
          [&](const channel::StopReady& message) { hear(event.rank, message); },
          [&](const channel::WorkerError& message) { hear(event.rank, message); },
          [&](const channel::RegroupReady& message) { hear(event.rank, message); },
          [&](const channel::GroupFormed& message) { hear(event.rank, message); },
          Ignored<channel::EvalResult, channel::Pace, channel::StandbyReady, channel::Position, channel::StoreRequest>{}},
      event.message);
  start_missing_standbys();
}

// Handles another version of the protocol. The shell's channel already ignores such a helper of a script. ddptrain is killed:
// it cannot start without the channel, which carries its store.
void AgentState::hear(int rank, const channel::Hello& message) {
  WorkerRecord& speaker = worker(rank);
  if (channel::speaks_our_version(message)) {
    speaker.said_hello = true;
  } else if (!settings_.workers_have_channel) {
    emit(HelperIgnored{global(rank), channel::other_version_of(message), now_.realtime_ns});
  } else if (speaker.live) {
    speaker.refused = true;
    speaker.error = channel::WorkerError{.kind = channel::ErrorKind::kUsage,
                                         .message = channel::other_version_of(message),
                                         .step = -1,
                                         .time_ns = now_.realtime_ns};
    act(agent_action::SendSignal{{rank}, SIGKILL});
  }
}

void AgentState::hear(int rank, const channel::PhaseChange& message) {
  WorkerRecord& speaker = worker(rank);
  speaker.step = std::max(speaker.step, message.step);
  speaker.says_done = message.phase == channel::Phase::kDone;
  if (message.phase == channel::Phase::kRunning) speaker.has_trained = has_trained_ = true;
  if (message.phase == channel::Phase::kSaving && this_round_.agreed_step && speaker.saves_on_stop) speaker.saves_now = true;
  if (speaker.says_done && this_round_.agreement) {
    this_round_.agreement->left(rank);
    announce_agreed_step();
  }
}

// A signal reached the worker itself. If we are stopping the worker, the signal was ours or means the same. Otherwise ddptrain
// ignores it: if the signal was sent to all processes, our own order follows. A script's helper reports the signal as a request
// to stop the whole job. Schedulers, systemd and `kill` reach scripts too, and without the helper such a signal would have
// ended the worker.
void AgentState::hear(int rank, const channel::SignalReceived& message) {
  switch (phase_) {
    case Phase::kSaving:
      act(agent_action::Tell{{rank}, stop_message(Stop::Mode::kSave, settings_.shutdown_timeout)});
      if (this_round_.agreed_step) act(agent_action::Tell{{rank}, channel::StopAt{*this_round_.agreed_step}});
      return;
    case Phase::kStopping:
      act(agent_action::Tell{{rank}, stop_message(Stop::Mode::kNow, milliseconds{0})});
      return;
    case Phase::kRunning:
      if (!settings_.workers_have_channel) {
        if (stop_signal_ == 0) stop_job(message.signal, StopRequested::Effect::kStops);
        return;
      }
      [[fallthrough]];
    case Phase::kHolding:
      act(agent_action::Tell{{rank}, channel::IgnoreSignal{message.signal}});
      return;
    case Phase::kIdle:
    case Phase::kSweeping:
    case Phase::kPausing:
    case Phase::kFinished:
      return;
  }
}

void AgentState::hear(int rank, const channel::StopReady& message) {
  if (phase_ != Phase::kSaving) return;
  if (this_round_.agreed_step) {  // a repeated answer: the rank has not seen the agreed step
    act(agent_action::Tell{{rank}, channel::StopAt{*this_round_.agreed_step}});
    return;
  }
  existing(this_round_.agreement, "workers save without an agreement on the step").ready(rank, message.started);
  announce_agreed_step();
}

void AgentState::hear(int rank, const channel::WorkerError& message) {
  if (!message.fatal) return;
  WorkerRecord& speaker = worker(rank);
  speaker.step = std::max(speaker.step, message.step);
  // The first error is the reason; later ones come from unwinding.
  if (!speaker.error) speaker.error = message;
}

// Schedulers repeat SIGTERM (Slurm at a time limit), and saving must continue. Only a person who presses Ctrl-C again means
// "now".
void AgentState::handle(const agent_event::SignalArrived& event) {
  const bool from_person = event.signal == SIGINT || event.signal == SIGQUIT;
  const bool insists = from_person && ++signals_by_person_ >= 2;
  using Effect = StopRequested::Effect;
  if (stop_signal_ == 0) return stop_job(event.signal, insists ? Effect::kKills : Effect::kStops);
  emit(StopRequested{event.signal, insists ? Effect::kKills : Effect::kNothingNew, now_.realtime_ns});
  if (member() && (phase_ == Phase::kIdle || phase_ == Phase::kHolding)) {  // the first signal had no answer
    handle(agent_event::JobEnded{128 + event.signal, "stopped by " + signal_name(event.signal)});
    if (insists && dismissing_held_) kill_all();
  } else if (insists && phase_ == Phase::kSweeping) {
    this_round_.kill_rest = true;
    order_sweep();
  } else if (insists) {
    kill_all();
  }
}

// The first signal that stops the job.
void AgentState::stop_job(int signal, StopRequested::Effect effect) {
  emit(StopRequested{signal, effect, now_.realtime_ns});
  stop_signal_ = signal;
  // The signal may have reached the workers before us. Their leftovers may be saving, so these get the full stop time.
  if (phase_ == Phase::kSweeping) order_sweep();
  if (member()) {
    const bool can_be_held = settings_.regroup_limit.count() > 0 && regroupable_;
    const bool can_save = (settings_.workers_have_channel || all_can_save()) && settings_.shutdown_timeout.count() > 0;
    act(agent_action::ReportSignal{signal, can_save && !can_be_held});
    return;
  }
  switch (phase_) {
    case Phase::kRunning:
      reason_ = signal_name(signal);
      stop_when_together(signal);
      return;
    case Phase::kPausing:
      act(agent_action::CancelTimer{AgentTimer::kPause});
      end_stopped_job();
      return;
    case Phase::kIdle:
      end_stopped_job();
      return;
    case Phase::kStopping:  // already stopping for a failure: stop_signal_ now prevents the next round
    case Phase::kHolding:
    case Phase::kSaving:
    case Phase::kSweeping:
    case Phase::kFinished:
      return;
  }
}

// Only sends the signal that the timer requested. The worker's death is then handled as its failure.
void AgentState::handle(const agent_event::TimerExpired& event) {
  WorkerRecord& overdue = worker(event.rank);
  if (!overdue.live || (phase_ != Phase::kRunning && phase_ != Phase::kSaving)) return;
  overdue.timer_expired = event.message;
  act(agent_action::SendSignal{{event.rank}, event.signal});
}

// As with a timer, the death of the ranks to blame is handled as the failure. The evidence names ranks that exited with 0,
// since the others may wait for them.
void AgentState::handle(const agent_event::HangFound& event) {
  if (phase_ != Phase::kRunning) return;
  std::vector<int> to_blame;
  for (const HangFinding& finding : event.findings) {
    WorkerRecord& found = worker(finding.rank);
    if (!found.live) continue;
    found.hang_evidence = finding.evidence;
    if (!finding.blame) continue;
    found.hangs = finding.blame;
    to_blame.push_back(finding.rank);
    for (int rank = 0; rank < settings_.world_size; ++rank) {
      if (!worker(rank).status) continue;
      found.hang_evidence.push_back("rank " + std::to_string(global(rank)) +
                                    " had ended before with exit code 0: perhaps it is waited for");
    }
  }
  if (!to_blame.empty()) act(agent_action::SendSignal{to_blame, SIGKILL});
}

void AgentState::handle(const agent_event::WorkerStuck& event) {
  WorkerRecord& stuck = worker(event.rank);
  const bool round_goes_on = phase_ == Phase::kRunning || phase_ == Phase::kSaving || phase_ == Phase::kStopping;
  if (!stuck.live || stuck.stuck || !round_goes_on) return;
  stuck.stuck = event.message;
  stuck.pid = event.pid;
  stuck.ended_ns = now_.realtime_ns;
  act(agent_action::SendSignal{{event.rank}, SIGKILL});  // takes effect when the worker leaves uninterruptible sleep
  if (live_ranks().empty()) {
    end_with_stuck_workers();
  } else if (phase_ != Phase::kStopping) {
    act(agent_action::CancelTimer{AgentTimer::kSave});
    stop_for_failure(event.rank);
  }
}

void AgentState::handle(const agent_event::TimerFired& event) {
  switch (event.timer) {
    case AgentTimer::kSave:
      if (phase_ == Phase::kSaving) stop_now(SIGTERM, kept_for_stopping(settings_.shutdown_timeout));
      return;
    case AgentTimer::kKill:
      if (phase_ == Phase::kStopping) kill_all();
      return;
    case AgentTimer::kPause:
      if (phase_ == Phase::kPausing) start_round();
      return;
    case AgentTimer::kRegroup:
      if (regroup_ && !(stops_when_together_ != 0 && save_with_survivors()))
        give_up_regroup("the workers did not come together again in time");
      return;
    case AgentTimer::kReplace:
      start_successors();
      return;
    case AgentTimer::kSpares:
      this_round_.script_speaks = true;
      start_missing_spares();
      // A spare was lost, and the pause before the next one still lasts.
      if (const auto rest = standbys_.pause(now_.steady); rest.count() > 0)
        act(agent_action::SetTimer{AgentTimer::kSpares, rest});
      return;
  }
}

// Only the first failure counts. A stop that has begun continues. A member's workers do not save. They would have to agree on a
// step with other nodes, whose workers hold the same state and continue with it.
void AgentState::handle(const agent_event::AgentFailed& event) {
  if (own_failure_) return;
  own_failure_ = event;
  reason_ = "ddprun has failed";
  const std::set<int> running(event.running.begin(), event.running.end());
  for (int rank = 0; rank < static_cast<int>(workers_.size()); ++rank) {
    worker(rank).live = worker(rank).live && running.contains(rank);
  }
  const bool was_regrouping = regroup_.has_value();
  const std::set<int> survivors = live_survivors();
  leave_regroup();
  const bool none_is_left = live_ranks().empty();
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kPausing:
      act(agent_action::CancelTimer{AgentTimer::kPause});
      return end_after_own_failure();
    case Phase::kRunning:
      if (none_is_left) return sweep();
      if (!member() && !was_regrouping) return stop_by_signal(SIGTERM);
      if (!member() && save_without_the_lost(survivors)) return;
      return stop_now(SIGTERM, settings_.shutdown_timeout);
    case Phase::kHolding:
      if (none_is_left) return sweep();
      return stop_now(SIGTERM, std::min(settings_.shutdown_timeout, kGraceForHeld));
    case Phase::kSaving:
    case Phase::kStopping:
      if (none_is_left) sweep();
      return;
    case Phase::kSweeping:  // the failure may have lost the order to sweep
      return sweep();
    case Phase::kFinished:
      return;
  }
}

void AgentState::handle(const agent_event::RoundSwept&) {
  if (phase_ != Phase::kSweeping) return;
  act(agent_action::CancelTimer{AgentTimer::kKill});
  if (own_failure_) return end_after_own_failure();
  if (member()) {
    end_round_of_member();
    return;
  }
  const bool all_ok =
      std::all_of(workers_.begin(), workers_.end(), [](const WorkerRecord& w) { return w.status && w.status->ok(); });
  // A script that finished before the step at which it would have saved has done its work.
  const bool in_time = this_round_.save_asked && !this_round_.told_now &&
                       std::none_of(workers_.begin(), workers_.end(), [](const WorkerRecord& w) { return w.saves_now; });
  if (all_ok && (stop_signal_ == 0 || settings_.workers_have_channel || in_time)) {
    finish(0, "done");
  } else if ((stop_signal_ != 0 || this_round_.left_by_itself) && !this_round_.saves_without_lost) {
    end_stopped_job();
  } else {
    end_failed_round();
  }
}

// ---- a round ----

void AgentState::start_round() {
  check(phase_ == Phase::kIdle || phase_ == Phase::kPausing || phase_ == Phase::kSweeping,
        "a round starts while another one runs");
  begin_round();
  workers_.assign(static_cast<std::size_t>(settings_.world_size), WorkerRecord{});
  for (WorkerRecord& worker : workers_) worker.live = true;
  together_.clear();
  if (!keeps_spares()) standbys_.clear();
  act(agent_action::StartRound{round_, budget_.restart_count, facts_of(budget_.history),
                               take_spares()});  // first, so that workers start before observers run
  if (keeps_spares() && standbys_.wanted()) act(agent_action::SetTimer{AgentTimer::kSpares, kSparesAfter});
  announce_round(false);
}

void AgentState::announce_round(bool regroup) {
  emit(RoundStarted{.round = round_,
                    .restart_count = budget_.restart_count,
                    .world_size = job_world_size_,
                    .time_ns = now_.realtime_ns,
                    .workers_here = settings_.world_size,
                    .group_rank = group_rank_,
                    .nodes = nodes_,
                    .regroup = regroup});
}

// Resets all state of the previous round.
void AgentState::begin_round() {
  phase_ = Phase::kRunning;
  ++round_;
  this_round_ = ThisRound{.started = now_, .resumed_from = newest_checkpoint_};
}

void AgentState::worker_gone(int rank) {
  worker(rank).stuck.reset();  // the kernel could end the worker after all
  const WorkerRecord& gone = worker(rank);
  // Workers compare their states before they save. So a worker that was asked to stop may also report a corrupt state.
  const bool by_itself = !gone.asked_to_stop || (gone.error && gone.error->kind == channel::ErrorKind::kCorruptState);
  if (has_failed(gone) && by_itself && !this_round_.first_failure) this_round_.first_failure = now_.steady;

  if (phase_ == Phase::kRunning && has_failed(gone)) {
    this_round_.left_by_itself =
        settings_.workers_have_channel && gone.status && gone.status->signal == 0 && gone.status->code == kPreempted;
    const bool state_is_valid = !gone.error || !gone.error->others_suspect;
    if (stops_when_together_ != 0 && state_is_valid && save_with_survivors()) {
      worker(rank).abandoned = true;  // a stop is under way: the others save without a replacement
    } else if (!replace(rank) && !hold_after(rank)) {
      stop_for_failure(rank);
    }
  } else if (phase_ == Phase::kRunning && regroup_) {
    give_up_regroup("rank " + std::to_string(global(rank)) + " has ended");  // the others would wait for that rank forever
  } else if (phase_ == Phase::kSaving && this_round_.agreement && !gone.abandoned) {
    const bool saved = gone.status && gone.status->signal == 0 && (gone.status->code == 0 || gone.status->code == kPreempted);
    if (saved) {
      this_round_.agreement->left(rank);
      announce_agreed_step();
    } else if (!live_ranks().empty()) {  // the others would wait for that rank forever
      act(agent_action::CancelTimer{AgentTimer::kSave});
      stop_now(SIGTERM, kept_for_stopping(settings_.shutdown_timeout));
    }
  }

  if (live_ranks().empty() && any_stuck()) {
    end_with_stuck_workers();
    return;
  }
  if (phase_ == Phase::kHolding) return;  // the lost worker is started again with the next round
  if (live_ranks().empty() && phase_ != Phase::kSweeping) {
    act(agent_action::CancelTimer{AgentTimer::kSave});
    sweep();
  }
}

// Called for the guardian's report and for the order to stop. Only the first of the two is reported.
void AgentState::cut_off(double unanswered_s) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kSaving && phase_ != Phase::kStopping) return;
  reason_ = "the coordinator does not answer";
  if (!std::exchange(this_round_.cut_off, true)) emit(CutOff{round_, unanswered_s, now_.realtime_ns});
  kill_all();
}

void AgentState::stop_for_failure(int rank) {
  if (member()) report_failure(failure_of(round(), rank), others_may_stay(rank));
  reason_ = "worker " + std::to_string(global(rank)) + (this_round_.left_by_itself ? " was preempted" : " failed");
  if (!live_ranks().empty()) stop_now(SIGTERM, settings_.shutdown_timeout);
}

// Asks the workers to save if all of them can. ddptrain's workers can, and scripts that have reported SavesOnStop. Other
// scripts get the signal itself.
void AgentState::stop_by_signal(int signal) {
  if (all_can_save() && settings_.shutdown_timeout.count() > 0) {
    begin_saving(live_ranks());
  } else {
    stop_now(settings_.workers_have_channel ? SIGTERM : signal, settings_.shutdown_timeout);
  }
}

void AgentState::begin_saving(const std::vector<int>& ranks) {
  check(phase_ == Phase::kRunning || phase_ == Phase::kHolding, "workers are to save that neither run nor wait");
  phase_ = Phase::kSaving;
  dismiss_standbys();
  this_round_.save_asked = true;
  std::set<int> awaited;
  for (int rank : ranks) {
    ask_to_stop(worker(rank));
    if (!worker(rank).says_done) awaited.insert(rank);
  }
  const bool none_is_awaited = awaited.empty();
  this_round_.agreement.emplace(std::move(awaited));
  if (member() && none_is_awaited) act(agent_action::ReportSteps{-1});
  // A stop that has waited for a regroup has used up part of its time.
  const auto since = this_round_.stop_waits_since.value_or(now_.steady);
  const milliseconds kept = kept_for_stopping(settings_.shutdown_timeout);
  const milliseconds left = settings_.shutdown_timeout - kept - std::chrono::duration_cast<milliseconds>(now_.steady - since);
  const milliseconds time = std::max(left, std::min(kept, settings_.shutdown_timeout - kept));
  note_end_of_stop(time + kept);
  act(agent_action::Tell{ranks, stop_message(Stop::Mode::kSave, time)});
  act(agent_action::SetTimer{AgentTimer::kSave, time});
}

void AgentState::announce_agreed_step() {
  if (this_round_.agreed_step || !this_round_.agreement) return;
  const std::optional<std::int64_t> step = this_round_.agreement->step();
  if (!step) return;
  if (member()) {
    act(agent_action::ReportSteps{*step});  // workers of other nodes may have started more steps
  } else {
    tell_step(*step);
  }
}

void AgentState::tell_step(std::int64_t step) {
  check(phase_ == Phase::kSaving, "a step is agreed on while nobody saves");
  check(!this_round_.agreed_step, "a second step is agreed on");
  this_round_.agreed_step = step;
  act(agent_action::Tell{live_ranks(), channel::StopAt{step}});
}

void AgentState::stop_now(int signal, milliseconds grace) {
  check(phase_ == Phase::kRunning || phase_ == Phase::kSaving || phase_ == Phase::kHolding, "workers are stopped in no round");
  phase_ = Phase::kStopping;
  leave_regroup();
  dismiss_standbys();
  const auto ranks = live_ranks();
  for (int rank : ranks) ask_to_stop(worker(rank));
  if (grace.count() == 0) {
    kill_all();
    return;
  }
  this_round_.told_now = true;
  note_end_of_stop(grace);
  std::vector<int> listen;  // includes scripts that may be waiting for the agreed step
  for (const int rank : ranks)
    if (settings_.workers_have_channel || worker(rank).saves_on_stop) listen.push_back(rank);
  if (!listen.empty()) act(agent_action::Tell{listen, stop_message(Stop::Mode::kNow, grace)});
  act(agent_action::SendSignal{ranks, signal});
  act(agent_action::SetTimer{AgentTimer::kKill, grace});
}

void AgentState::kill_all() {
  if (phase_ == Phase::kRunning || phase_ == Phase::kSaving) {
    act(agent_action::CancelTimer{AgentTimer::kSave});
    leave_regroup();
    dismiss_standbys();
    phase_ = Phase::kStopping;
  }
  const auto ranks = live_ranks();
  for (int rank : ranks) {
    ask_to_stop(worker(rank));
    worker(rank).killed = true;
  }
  this_round_.told_now = true;
  if (!ranks.empty()) act(agent_action::SendSignal{ranks, SIGKILL});
}

void AgentState::sweep() {
  check(live_ranks().empty(), "a round is swept while a worker runs");
  phase_ = Phase::kSweeping;
  leave_regroup();  // the last worker may have ended while it regrouped
  dismiss_standbys();
  act(agent_action::CancelTimer{AgentTimer::kKill});
  order_sweep();
}

void AgentState::order_sweep() {
  using How = agent_action::Sweep::How;
  const auto all = [this](const auto& is_so) { return std::all_of(workers_.begin(), workers_.end(), is_so); };
  const bool any_killed = !all([](const WorkerRecord& w) { return !w.killed; });
  const bool all_ok = all([](const WorkerRecord& w) { return w.status && w.status->ok(); });
  agent_action::Sweep order{.timeout = settings_.shutdown_timeout};
  if (any_killed || this_round_.kill_rest || settings_.shutdown_timeout.count() == 0) {
    order.timeout = milliseconds{0};
  } else if (stop_signal_ != 0 || own_failure_) {
    order.how = How::kStop;
    if (!this_round_.stop_ends) note_end_of_stop(settings_.shutdown_timeout);
    order.timeout = std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(*this_round_.stop_ends - now_.steady));
  } else {
    order.how = all_ok && !this_round_.told_now ? How::kDone : How::kEnd;
    order.next_round = !all_ok && next_round_follows();
  }
  act(order);
}

// An estimate before the sweep. If another round follows, it waits only for leftovers that hold its resources.
bool AgentState::next_round_follows() const {
  if (this_round_.left_by_itself || this_round_.saves_without_lost) return false;
  return member() || this_round_.fell_back || verdict_on(judged().first).restart;
}

// ---- a round's end ----

// The stuck workers still hold resources (a GPU, a port), so no round can follow. The guardian stays until the kernel has ended
// them.
void AgentState::end_with_stuck_workers() {
  RoundFailed event = judged();
  const auto stuck = std::find_if(workers_.begin(), workers_.end(), [](const WorkerRecord& w) { return w.stuck.has_value(); });
  check(stuck != workers_.end(), "no worker of the round is stuck");
  const int rank = static_cast<int>(stuck - workers_.begin());
  event.why = "a worker that cannot be killed holds what the next one would need";
  std::string why = "worker " + std::to_string(global(rank)) + ": " + *stuck->stuck;
  int exit_code = static_cast<int>(ExitCode::kInternal);                   // another machine may be able to run the job
  if (event.first.status) exit_code = event.first.status->as_exit_code();  // another worker had failed before
  if (stop_signal_ != 0) exit_code = 128 + stop_signal_;
  if (job_over_) {  // all nodes end with the same exit code
    exit_code = job_over_->exit_code;
    why = job_over_->why + "; " + why;
  }
  if (own_failure_) {
    exit_code = own_failure_->exit_code;
    why = own_failure_->why + "; " + why;
  }
  emit(std::move(event));
  phase_ = Phase::kFinished;
  emit(RunEnded{exit_code, why, budget_.restart_count, now_.realtime_ns,
                std::chrono::duration<double>(now_.steady - began_).count()});
  act(agent_action::Finish{exit_code, true});
}

void AgentState::end_stopped_job() {
  const std::string by = stop_signal_ != 0 ? "stopped by " + signal_name(stop_signal_) : "stopped by its workers";
  if (phase_ == Phase::kSweeping && this_round_.first_failure &&
      !this_round_.left_by_itself) {  // the job was failing when the signal came
    RoundFailed event = judged();
    event.why = by;
    emit(std::move(event));
  }
  if (this_round_.left_by_itself || (this_round_.save_asked && all_have_saved())) {
    finish(kPreempted, by + what_was_saved());
  } else {
    finish(128 + stop_signal_, by + (settings_.workers_have_channel || this_round_.save_asked ? " before it could save" : ""));
  }
}

void AgentState::end_after_own_failure() {
  std::string why = existing(own_failure_, "the job ends for no failure of its agent").why;
  if (this_round_.save_asked && all_have_saved()) why += "; its workers stopped" + what_was_saved();
  finish(own_failure_->exit_code, why);
}

// A job without any step since its start had nothing to save.
std::string AgentState::what_was_saved() const {
  if (!settings_.workers_have_channel) return " after saving: run it again to go on";  // a script's steps are not known here
  std::int64_t made = -1;
  for (const WorkerRecord& worker : workers_) made = std::max(made, worker.step);
  if (made <= 0) return " before its first step, with nothing to save: run it again to begin";
  if (newest_checkpoint_ < made) return " with nothing new to save: run it again to go on";
  return " after saving: run it again to go on";
}

bool AgentState::others_have_saved(int lost) const {
  for (int rank = 0; rank < settings_.world_size; ++rank) {
    const auto& status = worker(rank).status;
    if (rank != lost && (!status || status->signal != 0 || status->code != kPreempted)) return false;
  }
  return settings_.world_size > 1;
}

void AgentState::end_failed_round() {
  if (this_round_.fell_back) {  // that failure was already counted and reported
    start_round();
    return;
  }
  check(phase_ == Phase::kSweeping, "a round is judged that is not over");
  RoundFailed event = judged();
  const rendezvous::Verdict verdict = verdict_on(event.first);
  if (!verdict.restart) {
    event.why = verdict.why;
    const bool saved = this_round_.saves_without_lost && others_have_saved(event.first.local_rank);
    emit(std::move(event));
    if (saved) {
      const bool again = verdict.preempted_once_saved;
      finish(again ? kPreempted : verdict.exit_code,
             verdict.end() + "; the others have saved what they held" + (again ? ": run it again to go on" : ""));
    } else {
      finish(verdict.exit_code, verdict.end());
    }
    return;
  }
  restart(std::move(event), RoundFailed::Decision::kRestart, verdict);
  if (verdict.delay.count() == 0) {
    start_round();
  } else {
    phase_ = Phase::kPausing;
    act(agent_action::SetTimer{AgentTimer::kPause, verdict.delay});
  }
}

// Judges a failure on one machine. On many machines the coordinator calls the same judge.
rendezvous::Verdict AgentState::verdict_on(const Failure& first) const {
  check(!member(), "a member judges a failure of the job");
  return judge(first, record_of(first), budget_, settings_.restarts);
}

// Counts the restart and reports that the job continues after the failed round.
void AgentState::restart(RoundFailed event, RoundFailed::Decision how, const rendezvous::Verdict& verdict) {
  budget_ = verdict.after;
  event.decision = how;
  event.why = verdict.why;
  // It is not yet known which of the other ranks hold the state. The event Regrouped reports them when they have answered.
  if (how == RoundFailed::Decision::kRegroup) event.why += ": rank " + std::to_string(event.first.rank) + " is replaced";
  if (verdict.delay.count() > 0) event.why += " in " + std::to_string(verdict.delay.count()) + " ms";
  emit(std::move(event));
}

void AgentState::finish(int exit_code, const std::string& why) {
  check(phase_ != Phase::kFinished, "a job ends twice");
  phase_ = Phase::kFinished;
  emit(RunEnded{exit_code, why, budget_.restart_count, now_.realtime_ns,
                std::chrono::duration<double>(now_.steady - began_).count()});
  act(agent_action::Finish{exit_code});
}

// ---- a lost worker ----
//
// The other workers keep their processes and their state. The restart policy decides whether the lost worker is replaced, and
// when.

// True: the lost worker is being replaced. False: the round must end.
bool AgentState::replace(int rank) {
  if (member() || !regroupable_ || !others_may_stay(rank)) return false;
  std::set<int> alive;
  for (const int other : live_ranks()) alive.insert(other);
  for (const int coming : successors_) alive.erase(coming);
  const bool all_others = static_cast<int>(alive.size() + successors_.size()) == settings_.world_size - 1;
  if (alive.empty() || !all_others) return false;

  if (regroup_ && regroup_->also_lost(rank)) {
    expect_anew(rank);
    this_round_.first_failure.reset();
    const bool waits = !successors_.empty();  // for the pause before the first replacement starts
    successors_.insert(rank);
    if (!waits) start_successors();
    return true;
  }

  if (regroup_ && was_still_standby(rank)) {
    expect_anew(rank);
    this_round_.first_failure.reset();
    successors_.insert(rank);
    start_successors();
    return true;
  }

  RoundFailed event = judged();
  const rendezvous::Verdict verdict = verdict_on(event.first);
  // This verdict is not applied: the end of the round judges the failure again, when more is known.
  if (!verdict.restart) {
    if (!verdict.others_save || !save_without_the_lost(alive)) return false;
    this_round_.saves_without_lost = true;
    return true;
  }
  const milliseconds pause = verdict.delay;
  const int generation = verdict.after.restart_count;

  ++round_;
  regroup_.emplace(generation, std::set<int>{rank}, alive, now_.steady);
  act(agent_action::Tell{.ranks = {alive.begin(), alive.end()}, .message = channel::Regroup{.generation = generation}});
  restart(std::move(event), RoundFailed::Decision::kRegroup, verdict);
  announce_round(true);
  expect_anew(rank);
  this_round_.started = now_;
  this_round_.began_at.reset();
  this_round_.first_failure.reset();
  // restart() has counted these checkpoints as progress, so the next judgement must not count them again.
  this_round_.resumed_from = std::max(this_round_.resumed_from, newest_checkpoint_);
  successors_.insert(rank);
  const auto as_at_first = std::chrono::ceil<milliseconds>(2 * came_up_in_);  // the replacement may have to load much data
  act(agent_action::SetTimer{AgentTimer::kRegroup, std::max(settings_.regroup_limit, as_at_first) + pause});
  if (pause.count() > 0) {
    act(agent_action::SetTimer{AgentTimer::kReplace, pause});
  } else {
    start_successors();
  }
  return true;
}

// The job ends before a lost worker is replaced. The other workers form a group without it and save their state. They agree on
// a step as at any other stop. A replacement that is still loading holds no state, so it is killed.
bool AgentState::save_without_the_lost(const std::set<int>& alive) {
  if (settings_.shutdown_timeout.count() == 0 || alive.empty()) return false;
  abandon_replacements(alive);
  if (stop_signal_ == 0 && !own_failure_) reason_ = "a worker cannot be replaced";
  const int world = static_cast<int>(alive.size());
  int place = 0;
  for (const int rank : alive) {
    const channel::Regroup order{
        .generation = (member() ? round_generation_ : budget_.restart_count) + 1,  // no other group has this number
        .rank = place++,
        .world_size = world,
        .group_rank = 0,
        .group_world_size = 1};
    act(agent_action::Tell{{rank}, order});
  }
  begin_saving({alive.begin(), alive.end()});
  return true;
}

// Ranks outside `alive` hold no state. Kills those that run; the round no longer waits for any of them.
void AgentState::abandon_replacements(const std::set<int>& alive) {
  for (const int rank : successors_) worker(rank).abandoned = true;  // they were not started
  leave_regroup();
  std::vector<int> loading;
  for (const int rank : live_ranks()) {
    if (alive.contains(rank) || worker(rank).abandoned) continue;
    ask_to_stop(worker(rank));
    worker(rank).killed = worker(rank).abandoned = true;
    loading.push_back(rank);
  }
  if (!loading.empty()) act(agent_action::SendSignal{std::move(loading), SIGKILL});
}

// Ranks of the pending regroup that hold the state, or may hold it, and whose processes run.
std::set<int> AgentState::live_survivors() const {
  std::set<int> ranks;
  if (!regroup_) return ranks;
  for (const int rank : regroup_->survivors()) {
    if (worker(rank).live && !worker(rank).stuck) ranks.insert(rank);
  }
  return ranks;
}

// A stop has begun, and the replacement of a lost worker takes too long or has failed. False: no worker holds the state. The
// workers of other nodes may hold the same state, and two nodes must not write the same checkpoint. So a member's workers wait
// until the coordinator asks one node to save (save_what_is_held).
bool AgentState::save_with_survivors() {
  const std::set<int> alive = live_survivors();
  if (!member()) return save_without_the_lost(alive);
  if (settings_.shutdown_timeout.count() == 0 || alive.empty()) return false;
  hold_for_stop(alive);
  return true;
}

// A spare interpreter became a worker and does not answer. A new interpreter replaces it in the same round.
void AgentState::handle(const agent_event::SpareUnresponsive& event) {
  if (phase_ != Phase::kRunning || !worker(event.rank).live) return;
  act(agent_action::StartWorker{event.rank, round_, budget_.restart_count, facts_of(budget_.history)});
}

void AgentState::expect_anew(int rank) {
  worker(rank) = WorkerRecord{};
  worker(rank).live = true;
}

void AgentState::start_successors() {
  if (!regroup_) return;
  check(phase_ == Phase::kRunning, "lost workers are replaced in no round");
  for (const int rank : std::exchange(successors_, {})) {
    if (!keeps_spares()) worker(rank).standby = standbys_.take();
    if (const auto& standby = worker(rank).standby) {
      worker(rank).said_hello = true;
      act(agent_action::TakeOver{*standby, rank, round_, budget_.restart_count});
    } else {
      act(agent_action::StartWorker{rank, round_, budget_.restart_count, facts_of(budget_.history)});
    }
  }
}

void AgentState::hear(int rank, const channel::RegroupReady& message) {
  if (!regroup_) return;
  regroup_->ready(rank, message.generation, message.step);
  worker(rank).step = std::max(worker(rank).step, message.step);
}

void AgentState::hear(int rank, const channel::GroupFormed& message) {
  worker(rank).step = std::max(worker(rank).step, message.step);
  if (!regroup_) {
    came_up_in_ = now_.steady - this_round_.started.steady;
    if (together_.insert(rank).second && static_cast<int>(together_.size()) == settings_.world_size) begins_at(message.step);
  }
  if (!regroup_ || !regroup_->joined(rank, message.generation, message.step, settings_.world_size)) return;
  const std::set<int>& replaced = regroup_->replaced();
  const auto globally = [this](const auto& ranks) {
    std::vector<int> global_ranks;
    global_ranks.reserve(ranks.size());
    for (const int one : ranks) global_ranks.push_back(global(one));
    return global_ranks;
  };
  std::vector<int> by_standby;
  for (const int one : replaced) {
    if (worker(one).standby) by_standby.push_back(global(one));
  }
  emit(Regrouped{.round = round_,
                 .kept = globally(regroup_->keepers()),
                 .replaced = globally(replaced),
                 .by_standby = std::move(by_standby),
                 .step = regroup_->step(),
                 .seconds = std::chrono::duration<double>(now_.steady - regroup_->begun()).count(),
                 .time_ns = now_.realtime_ns});
  begins_at(regroup_->step());
  const int signal = stops_when_together_;
  leave_regroup();
  if (signal != 0) stop_by_signal(signal);
}

// All ranks are in the group and continue from `step`. The restart policy compares it with the steps at which earlier rounds
// began.
void AgentState::begins_at(std::int64_t step) {
  this_round_.began_at = step;
  this_round_.resumed_from = std::max(newest_checkpoint_, step);
}

// During a regroup the stop waits for the new group, since its workers can save together. If the replacement has not started
// yet, the other workers save without it.
void AgentState::stop_when_together(int signal) {
  if (!regroup_ || settings_.shutdown_timeout.count() == 0) return stop_by_signal(signal);
  if (!successors_.empty() && save_with_survivors()) return;
  stops_when_together_ = signal;
  this_round_.stop_waits_since = now_.steady;
  act(agent_action::SetTimer{AgentTimer::kRegroup, settings_.shutdown_timeout / 2});
}

void AgentState::leave_regroup() {
  if (!regroup_) return;
  regroup_.reset();
  stops_when_together_ = 0;
  for (const int rank : std::exchange(successors_, {})) worker(rank).live = false;  // they were never started
  act(agent_action::CancelTimer{AgentTimer::kRegroup});
  act(agent_action::CancelTimer{AgentTimer::kReplace});
}

// Falls back to a normal restart: all workers are stopped, and the next round begins with the newest checkpoint.
void AgentState::give_up_regroup(const std::string& why) {
  const bool stops = std::exchange(stops_when_together_, 0) != 0;
  leave_regroup();
  this_round_.fell_back = true;
  reason_ = why;
  if (!stops) emit(RegroupFailed{round_, why, now_.realtime_ns});  // the event announces a restart of all workers
  if (!live_ranks().empty()) stop_now(SIGTERM, std::min(settings_.shutdown_timeout, kGraceAfterRegroup));
}

// ---- standbys ----
//
// Standbys start after the first finished step of a round or regroup, since their loading would delay that step. They end with
// the round. The end of a standby is not a failure of the job.

// Called after each message of a worker. Messages of several workers arrive in any order: the first step may be reported before
// all ranks have reported the new group.
void AgentState::start_missing_standbys() {
  if (keeps_spares() || !standbys_.wanted() || !regroupable_ || !this_round_.began_at || regroup_) return;
  if (phase_ != Phase::kRunning || stop_signal_ != 0) return;
  const bool training =
      std::any_of(workers_.begin(), workers_.end(), [this](const WorkerRecord& w) { return w.step > *this_round_.began_at; });
  if (!training) return;
  for (const int number : standbys_.start_missing(now_.steady)) act(agent_action::StartStandby{number});
}

// The round ends, so no worker will be replaced in it.
void AgentState::dismiss_standbys() {
  if (keeps_spares() || !standbys_.any()) return;
  standbys_.clear();
  act(agent_action::DismissStandbys{});
}

void AgentState::handle(const agent_event::StandbyReady& event) {
  standbys_.ready(event.number, now_.steady);
  start_missing_spares();
}

void AgentState::handle(const agent_event::StandbyGone& event) {
  const auto pause = standbys_.gone(event.number, now_.steady);
  if (!pause) return;
  emit(StandbyEnded{.pid = event.pid,
                    .status = event.status,
                    .message = event.message,
                    .next_in_s = event.for_good ? -1 : std::chrono::duration<double>(*pause).count(),
                    .time_ns = event.time_ns});
  if (event.for_good) return standbys_.give_up();
  if (keeps_spares()) act(agent_action::SetTimer{AgentTimer::kSpares, *pause});
}

// ---- spare interpreters ----
//
// A script's workers all start again after a failure, so each spare that is ready saves one of them the time to load its
// libraries. Spares outlive their round. Missing ones are started when the script of the next round has begun.

std::vector<int> AgentState::take_spares() {
  std::vector<int> numbers;
  if (!keeps_spares()) return numbers;
  for (WorkerRecord& worker : workers_) {
    worker.standby = standbys_.take_ready();
    if (!worker.standby) break;
    numbers.push_back(*worker.standby);
  }
  return numbers;
}

void AgentState::handle(const agent_event::ScriptSpeaks&) {
  this_round_.script_speaks = true;
  start_missing_spares();
}

void AgentState::start_missing_spares() {
  if (!keeps_spares() || !standbys_.wanted() || !this_round_.script_speaks) return;
  if (phase_ != Phase::kRunning || stop_signal_ != 0) return;
  for (const int number : standbys_.start_missing(now_.steady)) act(agent_action::StartStandby{number});
}

// True if the process of this rank ended before it acted as a worker. It was still a standby, so another process takes the
// rank.
bool AgentState::was_still_standby(int rank) const {
  const WorkerRecord& gone = worker(rank);
  return gone.standby && !gone.heard;
}

// ---- orders to a member ----

void AgentState::handle(const agent_event::RoundReleased& event) {
  if (!member()) return;
  if (dismissing_held_) {
    next_release_ = event;
    return;
  }
  if (phase_ != Phase::kIdle && phase_ != Phase::kHolding) return;
  const bool held = phase_ == Phase::kHolding;
  std::string why = event.restart_count == budget_.restart_count
                        ? "the job goes on with the nodes that are here"
                        : "restart " + std::to_string(event.restart_count) + " of the job";
  const bool any_holds = std::any_of(workers_.begin(), workers_.end(), [](const auto& w) { return w.live && w.step >= 0; });
  if (held && any_holds) why += ": the others keep their state";
  tell_verdict(held ? RoundFailed::Decision::kRegroup : RoundFailed::Decision::kRestart, why);
  round_ = event.first_number + event.round - 1;
  round_generation_ = event.round;
  has_trained_ = has_trained_ || event.round > 1;  // this node may have joined a job that has already trained
  budget_.restart_count = event.restart_count;
  rank_offset_ = event.rank_offset;
  job_world_size_ = event.world_size;
  group_rank_ = event.group_rank;
  nodes_ = event.nodes;
  if (held) {
    continue_round();
  } else {
    start_round();
  }
}

void AgentState::handle(const agent_event::StopOrdered& event) {
  if (!member()) return;
  if (event.failure && !verdict_ && !this_round_.reported) {
    RoundFailed other{};
    other.round = round_;
    other.first = *event.failure;
    verdict_ = std::move(other);
  }
  if (dismissing_held_) refuse_release();
  if (phase_ != Phase::kRunning && phase_ != Phase::kSaving && phase_ != Phase::kStopping) return;
  if (event.unanswered_s) return cut_off(*event.unanswered_s);
  reason_ = event.why;
  if (event.hold && phase_ == Phase::kRunning && may_hold()) return hold();
  if (event.at_once) {
    kill_all();
  } else if (phase_ != Phase::kStopping) {
    act(agent_action::CancelTimer{AgentTimer::kSave});
    stop_now(SIGTERM, settings_.shutdown_timeout);
  }
}

void AgentState::handle(const agent_event::SaveOrdered& event) {
  if (!member()) return;
  if (event.held) return save_what_is_held();
  if (dismissing_held_) refuse_release();
  if (phase_ != Phase::kRunning) return;
  reason_ = signal_name(event.signal);
  stop_when_together(event.signal);
}

void AgentState::handle(const agent_event::StepAgreed& event) {
  if (!member() || phase_ != Phase::kSaving || this_round_.agreed_step) return;
  tell_step(event.step);
}

void AgentState::handle(const agent_event::JobEnded& event) {
  if (!member() || own_failure_) return;
  if (phase_ == Phase::kHolding) dismiss_held(event.why);
  if (dismissing_held_) {
    job_over_ = event;
    return;
  }
  tell_verdict(RoundFailed::Decision::kGiveUp, event.why);
  finish(event.exit_code, event.why);
}

// ---- reports to the coordinator ----

void AgentState::report_failure(const Failure& failure, bool others_stay) {
  check(member(), "a job on one machine has no coordinator to tell");
  this_round_.reported = failure;
  act(agent_action::ReportFailure{failure, record_of(failure), others_stay});
}

// The coordinator decides what follows. verdict_ keeps the evidence until then.
void AgentState::end_round_of_member() {
  check(member(), "a job on one machine has no coordinator to tell");
  using How = agent_action::ReportRoundOver::How;
  phase_ = Phase::kIdle;
  if (end_of_held()) return;
  const auto left_well = [](const WorkerRecord& w) { return w.status && w.status->ok(); };
  // A script that exits with code 0 after an order to stop has not finished its work. It may not have saved either, unless the
  // script reports that.
  const bool cut_short = !settings_.workers_have_channel && (this_round_.told_now || !this_round_.save_asked);
  const auto saved = [&](const WorkerRecord& w) {
    return !cut_short && w.status && w.status->signal == 0 && (w.status->code == kPreempted || w.status->code == 0);
  };
  const bool stopped = !settings_.workers_have_channel && std::any_of(workers_.begin(), workers_.end(), [&](const auto& w) {
    return w.asked_to_stop && (cut_short || has_saved(w));
  });
  if (!stopped && std::all_of(workers_.begin(), workers_.end(), left_well)) {
    act(agent_action::ReportRoundOver{How::kDone});
    return;
  }
  const auto saved_or_lost = [&](const WorkerRecord& w) {
    return saved(w) || w.abandoned || (this_round_.saves_without_lost && !w.asked_to_stop);
  };
  const bool all_saved = this_round_.save_asked && std::all_of(workers_.begin(), workers_.end(), saved_or_lost);
  const auto by_itself = [this](const WorkerRecord& w) {
    return has_failed(w) && blame_of(w, settings_.workers_have_channel) != Blame::kStopped;
  };
  if (!all_saved && std::any_of(workers_.begin(), workers_.end(), by_itself)) {
    RoundFailed event = judged();
    const bool known = this_round_.reported && this_round_.reported->local_rank == event.first.local_rank &&
                       this_round_.reported->cause == event.first.cause;
    if (!known) report_failure(event.first, others_may_stay(event.first.local_rank));
    if (!verdict_) verdict_ = std::move(event);
  }
  agent_action::ReportRoundOver over{all_saved ? How::kSaved : How::kEnded};
  const auto& reported = this_round_.reported;
  if (reported && reported->cause == Cause::kDevice && is_hopeless(Cause::kDevice, settings_.restarts.rules))
    over.leaves_with = record_of(*reported).status.as_exit_code();
  act(over);
}

void AgentState::tell_verdict(RoundFailed::Decision decision, const std::string& why) {
  if (!verdict_) return;
  verdict_->decision = decision;
  verdict_->why = why;
  verdict_->time_ns = now_.realtime_ns;
  emit(*std::exchange(verdict_, std::nullopt));
}

// ---- holding ----
//
// The workers of a member leave their group and wait with their state. The agent reports to the coordinator that the round is
// over on this node. The next release contains the new ranks, and the agent starts the missing workers. From then on it is a
// regroup as on one machine. The wait has no separate time limit: this coordinator or a successor sends the next release or
// the end of the job.
//
//     running -> holding -- RoundReleased --> running, regrouping
//                holding -- JobEnded or HeldDismissed --> stopping -> sweeping -> idle

// True if the other workers may keep their state after the loss of rank `lost`.
bool AgentState::others_may_stay(int lost) const {
  if (settings_.regroup_limit.count() == 0 || !(settings_.workers_have_channel || regroupable_)) return false;
  if (stop_signal_ != 0 || this_round_.left_by_itself) return false;
  const auto& error = worker(lost).error;
  return !error || !error->others_suspect;
}

// Workers are held after a signal too: the coordinator knows of the signal and may order the held workers to save.
bool AgentState::may_hold() const {
  return member() && settings_.regroup_limit.count() > 0 && regroupable_ && !live_ranks().empty();
}

// True: the other workers of this node wait. False: they must be stopped.
bool AgentState::hold_after(int rank) {
  if (!may_hold() || !others_may_stay(rank)) return false;
  const Failure failure = failure_of(round(), rank);
  if (failure.cause == Cause::kDevice) return false;  // this node leaves, but workers of other nodes may wait
  report_failure(failure, true);
  if (!verdict_) verdict_ = judged();
  hold();
  return true;
}

void AgentState::hold() {
  check(phase_ == Phase::kRunning, "workers are to wait for a round that are in none");
  phase_ = Phase::kHolding;
  held_since_ = now_;
  leave_regroup();
  act(agent_action::Tell{live_ranks(), channel::Hold{}});
  act(agent_action::ReportRoundOver{.how = agent_action::ReportRoundOver::How::kEnded});
}

// A stop no longer waits for this round's group to form. The workers in `alive` wait and keep their state.
void AgentState::hold_for_stop(const std::set<int>& alive) {
  abandon_replacements(alive);
  phase_ = Phase::kHolding;
  held_since_ = now_;
  act(agent_action::Tell{{alive.begin(), alive.end()}, channel::Hold{}});
  act(agent_action::ReportRoundOver{.how = agent_action::ReportRoundOver::How::kEnded, .holds = true});
}

void AgentState::continue_round() {
  check(phase_ == Phase::kHolding, "a round continues for which nobody has waited");
  begin_round();
  std::set<int> kept;
  std::set<int> missing;
  for (int rank = 0; rank < settings_.world_size; ++rank) (worker(rank).live ? kept : missing).insert(rank);
  for (const int rank : kept) worker(rank).says_done = false;
  regroup_.emplace(round_generation_, missing, kept, held_since_.steady);
  act(agent_action::ContinueRound{round_, budget_.restart_count});
  announce_round(true);
  for (const int rank : kept) {
    act(agent_action::Tell{{rank},
                           channel::Regroup{.generation = round_generation_,
                                            .rank = global(rank),
                                            .world_size = job_world_size_,
                                            .group_rank = group_rank_,
                                            .group_world_size = nodes_}});
  }
  for (const int rank : missing) {
    expect_anew(rank);
    act(agent_action::StartWorker{rank, round_, budget_.restart_count, facts_of(budget_.history)});
  }
  const auto as_at_first = std::chrono::ceil<milliseconds>(2 * came_up_in_);
  act(agent_action::SetTimer{AgentTimer::kRegroup, std::max(settings_.regroup_limit, as_at_first)});
}

// No round follows for the held workers, so they save. A node without held workers reports that immediately, and the
// coordinator orders another node to save.
void AgentState::save_what_is_held() {
  std::set<int> waiting;
  for (const int rank : live_ranks()) {
    if (!worker(rank).abandoned) waiting.insert(rank);
  }
  const bool saves = phase_ == Phase::kHolding && save_without_the_lost(waiting);
  if (saves) this_round_.saves_without_lost = true;
  if (!saves) act(agent_action::ReportRoundOver{.how = agent_action::ReportRoundOver::How::kEnded});
}

void AgentState::handle(const agent_event::HeldDismissed& event) {
  if (phase_ == Phase::kHolding) dismiss_held(event.why);
}

// Stops the held workers, since no round will use them. The next release, or the end of the job, is handled when they have
// ended.
void AgentState::dismiss_held(const std::string& why) {
  check(phase_ == Phase::kHolding, "nobody waits who could be dismissed");
  dismissing_held_ = true;
  reason_ = why;
  if (live_ranks().empty()) {
    sweep();
  } else {
    stop_now(SIGTERM, std::min(settings_.shutdown_timeout, kGraceForHeld));
  }
}

// Reports the end of a round that has not begun on this node.
void AgentState::refuse_release() {
  if (!next_release_) return;
  next_release_.reset();
  act(agent_action::ReportRoundOver{.how = agent_action::ReportRoundOver::How::kEnded});
}

// True if held workers were being stopped and have now ended. The end of their round was reported before. A release or an end
// of the job that arrived meanwhile is handled now.
bool AgentState::end_of_held() {
  if (!std::exchange(dismissing_held_, false)) return false;
  const auto over = std::exchange(job_over_, std::nullopt);
  const auto release = std::exchange(next_release_, std::nullopt);
  if (over) {
    handle(*over);
  } else if (release) {
    handle(*release);
  }
  return true;
}

// ---- queries about the workers ----

std::vector<int> AgentState::live_ranks() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].live && !workers_[rank].stuck) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

bool AgentState::any_stuck() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const WorkerRecord& w) { return w.stuck.has_value(); });
}

// ddptrain can save after its Hello, a script after it has reported SavesOnStop.
bool AgentState::all_can_save() const {
  const auto can = [this](const WorkerRecord& w) {
    return !w.live || w.stuck || (settings_.workers_have_channel ? w.said_hello : w.saves_on_stop);
  };
  return (settings_.workers_have_channel || !live_ranks().empty()) && std::all_of(workers_.begin(), workers_.end(), can);
}

// True if the worker saved at the agreed step and ended. ddptrain then exits with 85. A script may exit with 0 as well; it
// counts if it had reached that step before it ended.
bool AgentState::has_saved(const WorkerRecord& worker) const {
  if (!worker.status || worker.status->signal != 0) return false;
  return worker.status->code == kPreempted || (worker.status->code == 0 && worker.saves_now && !this_round_.told_now);
}

// At least one worker has saved. Others may have finished the job instead.
bool AgentState::all_have_saved() const {
  const auto ended_well = [](const WorkerRecord& w) {
    return w.abandoned || (w.status && w.status->signal == 0 && (w.status->code == kPreempted || w.status->code == 0));
  };
  return std::any_of(workers_.begin(), workers_.end(), [this](const WorkerRecord& w) { return has_saved(w); }) &&
         std::all_of(workers_.begin(), workers_.end(), ended_well);
}

void AgentState::ask_to_stop(WorkerRecord& worker) {
  if (!worker.asked_to_stop) worker.asked_ns = now_.realtime_ns;
  worker.asked_to_stop = true;
}

channel::Stop AgentState::stop_message(Stop::Mode mode, milliseconds deadline) const {
  return {.mode = mode, .deadline_ms = deadline.count(), .reason = reason_};
}

std::optional<Failure> AgentState::first_failure() const {
  if (std::none_of(workers_.begin(), workers_.end(), has_failed)) return std::nullopt;
  return judged().first;
}

JudgedRound AgentState::round() const {
  return {.number = round_,
          .rank_offset = rank_offset_,
          .workers_have_channel = settings_.workers_have_channel,
          // A usage error of a plain script stays a usage error, even if other ranks have trained.
          .job_has_trained = has_trained_ && (settings_.workers_have_channel || regroupable_),
          .workers = workers_};
}

FailedRound AgentState::record_of(const Failure& first) const {
  FailedRound record = ddprun::record_of(round(), first);
  record.resumed_from = this_round_.resumed_from;
  record.newest_checkpoint = newest_checkpoint_;
  record.lasted = this_round_.first_failure.value_or(now_.steady) - this_round_.started.steady;
  return record;
}

}  // namespace ddprun
