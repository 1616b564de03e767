// Implementation of agent_state.hpp. Order of the file: the events, then how a round is started, stopped, swept and judged.
#include "launcher/decide/agent_state.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "common/base/exit_code.hpp"
#include "common/base/signal_name.hpp"

namespace ddprun {
namespace {

using channel::Stop;
using std::chrono::milliseconds;

constexpr int kPreempted = static_cast<int>(ExitCode::kPreempted);

// Of the whole time to stop, what is kept for stopping workers that could not save.
milliseconds kept_for_stopping(milliseconds total) {
  return std::min(total / 4, milliseconds{5000});
}

}  // namespace

AgentState::AgentState(AgentSettings settings)
    : settings_(settings), standbys_(settings.regroup_limit.count() > 0 ? settings.standbys : 0, settings.world_size) {
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
  emit(RunStarted{now_.realtime_ns, settings_.world_size});
  if (!member()) start_round();
}

void AgentState::handle(const agent_event::WorkerExited& event) {
  Worker& ended = worker(event.rank);
  if (!ended.live) return;
  ended.live = false;
  ended.pid = event.pid;
  ended.status = event.status;
  ended.ended_ns = event.time_ns;
  ended.error_file = event.error_file;
  ended.memory = event.memory;
  if (ended.standby) standbys_.release(*ended.standby);
  if (event.unanswered_s) {  // as if it had been asked and killed by us
    cut_off(*event.unanswered_s);
    ask_to_stop(ended);
    ended.killed = true;
  }
  emit(WorkerEnded{global(event.rank), event.pid, event.status, ended.asked_to_stop, event.time_ns});
  worker_gone(event.rank);
}

void AgentState::handle(const agent_event::SpawnFailed& event) {
  Worker& ended = worker(event.rank);
  if (!ended.live) return;
  ended.live = false;
  if (ended.standby) standbys_.release(*ended.standby);
  ended.spawn_error = event.message;
  ended.spawn_errno = event.error;
  ended.ended_ns = event.time_ns;
  worker_gone(event.rank);
}

void AgentState::handle(const agent_event::WorkerSaid& event) {
  Worker& speaker = worker(event.rank);
  const bool as_this_rank = !std::holds_alternative<channel::Hello>(event.message);  // a standby's may come late
  speaker.heard = speaker.heard || as_this_rank;
  std::visit(
      [&](const auto& message) {
        using Message = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<Message, channel::Hello>) {
          speaker.said_hello = true;
        } else if constexpr (std::is_same_v<Message, channel::Regroupable>) {
          regroupable_ = true;
        } else if constexpr (std::is_same_v<Message, channel::PhaseChange>) {
          speaker.step = std::max(speaker.step, message.step);
          speaker.says_done = message.phase == channel::Phase::kDone;
          if (speaker.says_done && agreement_) {
            agreement_->left(event.rank);
            announce_agreed_step();
          }
        } else if constexpr (std::is_same_v<Message, channel::Progress>) {
          speaker.step = std::max(speaker.step, message.step);
        } else if constexpr (std::is_same_v<Message, channel::CheckpointPublished>) {
          newest_checkpoint_ = std::max(newest_checkpoint_, message.step);
        } else if constexpr (std::is_same_v<Message, channel::SignalReceived> || std::is_same_v<Message, channel::StopReady> ||
                             std::is_same_v<Message, channel::WorkerError> || std::is_same_v<Message, channel::RegroupReady> ||
                             std::is_same_v<Message, channel::Regrouped>) {
          hear(event.rank, message);
        }
      },
      event.message);
  start_missing_standbys();
}

// A signal that reached the worker only: if we are stopping it was ours or says the same; otherwise it was meant for nobody.
void AgentState::hear(int rank, const channel::SignalReceived& message) {
  switch (phase_) {
    case Phase::kSaving:
      act(agent_action::Tell{{rank}, stop_message(Stop::Mode::kSave, settings_.shutdown_timeout)});
      if (agreed_step_) act(agent_action::Tell{{rank}, channel::StopAt{*agreed_step_}});
      return;
    case Phase::kStopping:
      act(agent_action::Tell{{rank}, stop_message(Stop::Mode::kNow, milliseconds{0})});
      return;
    case Phase::kRunning:
    case Phase::kHolding:
      act(agent_action::Tell{{rank}, channel::Carry{message.signal}});
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
  if (agreed_step_) {  // a repeated answer: the rank did not see what was agreed
    act(agent_action::Tell{{rank}, channel::StopAt{*agreed_step_}});
    return;
  }
  agreement_->ready(rank, message.started);
  announce_agreed_step();
}

void AgentState::hear(int rank, const channel::WorkerError& message) {
  if (!message.fatal) return;
  Worker& speaker = worker(rank);
  speaker.step = std::max(speaker.step, message.step);
  // The first one is the reason; what follows while unwinding is not.
  if (!speaker.error) speaker.error = message;
}

// Schedulers repeat SIGTERM (Slurm at a time limit), and saving must go on. Only a person who presses Ctrl-C again means "now".
void AgentState::handle(const agent_event::SignalArrived& event) {
  const bool from_person = event.signal == SIGINT || event.signal == SIGQUIT;
  const bool insists = from_person && ++signals_by_person_ >= 2;
  const bool again = stop_signal_ != 0;
  using Effect = StopRequested::Effect;
  emit(StopRequested{event.signal, insists ? Effect::kKills : again ? Effect::kNothingNew : Effect::kStops, now_.realtime_ns});
  if (again) {
    if (member() && (phase_ == Phase::kIdle || phase_ == Phase::kHolding)) {  // nobody answers the first
      handle(agent_event::JobEnded{128 + event.signal, "stopped by " + signal_name(event.signal)});
      if (insists && dismissing_held_) kill_all();
    } else if (insists && phase_ == Phase::kSweeping) {
      sweep();
    } else if (insists) {
      kill_all();
    }
    return;
  }
  stop_signal_ = event.signal;
  if (member()) {
    act(agent_action::ReportSignal{event.signal});
    return;
  }
  switch (phase_) {
    case Phase::kRunning:
      reason_ = signal_name(event.signal);
      stop_when_together(event.signal);
      return;
    case Phase::kPausing:
      act(agent_action::CancelTimer{AgentTimer::kPause});
      end_stopped_job();
      return;
    case Phase::kIdle:
      end_stopped_job();
      return;
    case Phase::kStopping:  // already, for a failure: what changes is that no round follows
    case Phase::kHolding:
    case Phase::kSaving:
    case Phase::kSweeping:
    case Phase::kFinished:
      return;
  }
}

// Its death is the failure; nothing but the signal is needed to bring it about.
void AgentState::handle(const agent_event::TimerExpired& event) {
  Worker& overdue = worker(event.rank);
  if (!overdue.live || (phase_ != Phase::kRunning && phase_ != Phase::kSaving)) return;
  overdue.timer_expired = event.message;
  act(agent_action::SendSignal{{event.rank}, event.signal});
}

// As with a timer: the death of those to blame is the failure. Who left before may be the one that is waited for.
void AgentState::handle(const agent_event::HangFound& event) {
  if (phase_ != Phase::kRunning) return;
  std::vector<int> to_blame;
  for (const HangFinding& finding : event.findings) {
    Worker& found = worker(finding.rank);
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
  Worker& stuck = worker(event.rank);
  const bool round_goes_on = phase_ == Phase::kRunning || phase_ == Phase::kSaving || phase_ == Phase::kStopping;
  if (!stuck.live || stuck.stuck || !round_goes_on) return;
  stuck.stuck = event.message;
  stuck.pid = event.pid;
  stuck.ended_ns = now_.realtime_ns;
  act(agent_action::SendSignal{{event.rank}, SIGKILL});  // for when the kernel lets go of it
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
      if (phase_ == Phase::kSweeping && patient_sweep_) {
        patient_sweep_ = false;
        sweep();
      }
      return;
    case AgentTimer::kPause:
      if (phase_ == Phase::kPausing) start_round();
      return;
    case AgentTimer::kRegroup:
      if (regroup_) give_up_regroup("the workers did not come together again in time");
      return;
    case AgentTimer::kReplace:
      start_successors();
      return;
  }
}

void AgentState::handle(const agent_event::RoundSwept&) {
  if (phase_ != Phase::kSweeping) return;
  act(agent_action::CancelTimer{AgentTimer::kKill});
  if (member()) {
    end_round_of_member();
    return;
  }
  const bool all_ok = std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.status && w.status->ok(); });
  if (all_ok && (stop_signal_ == 0 || settings_.workers_have_channel)) {
    finish(0, "done");
  } else if (stop_signal_ != 0 || left_by_itself_) {
    end_stopped_job();
  } else {
    end_failed_round();
  }
}

// ---- a round ----

void AgentState::start_round() {
  begin_round();
  workers_.assign(static_cast<std::size_t>(settings_.world_size), Worker{});
  for (Worker& worker : workers_) worker.live = true;
  together_.clear();
  standbys_.clear();
  act(agent_action::StartRound{round_, restarts_});  // first: who listens need not be waited for
  announce_round(false);
}

void AgentState::announce_round(bool regroup) {
  emit(RoundStarted{.round = round_,
                    .restart_count = restarts_,
                    .world_size = job_world_size_,
                    .time_ns = now_.realtime_ns,
                    .workers_here = settings_.world_size,
                    .group_rank = group_rank_,
                    .nodes = nodes_,
                    .regroup = regroup});
}

// Nothing is known of it yet, whoever takes part.
void AgentState::begin_round() {
  phase_ = Phase::kRunning;
  ++round_;
  fell_back_ = false;
  began_at_.reset();
  round_started_ = now_;
  first_failure_.reset();
  resumed_from_ = newest_checkpoint_;
  agreement_.reset();
  agreed_step_.reset();
  save_asked_ = false;
  patient_sweep_ = false;
  left_by_itself_ = false;
  cut_off_ = false;
  reported_.reset();
}

void AgentState::worker_gone(int rank) {
  worker(rank).stuck.reset();  // the kernel has let go of it
  const Worker& gone = worker(rank);
  // What is to be saved is compared first, so a state is found to be corrupt also by who was asked to stop.
  const bool by_itself = !gone.asked_to_stop || (gone.error && gone.error->kind == channel::ErrorKind::kCorruptState);
  if (failed(gone) && by_itself && !first_failure_) first_failure_ = now_.steady;

  if (phase_ == Phase::kRunning && failed(gone)) {
    left_by_itself_ =
        settings_.workers_have_channel && gone.status && gone.status->signal == 0 && gone.status->code == kPreempted;
    if (!replace(rank) && !hold_after(rank)) stop_for_failure(rank);
  } else if (phase_ == Phase::kRunning && regroup_) {
    give_up_regroup("rank " + std::to_string(global(rank)) + " has ended");  // the others would wait for it in vain
  } else if (phase_ == Phase::kSaving && agreement_) {
    const bool saved = gone.status && gone.status->signal == 0 && (gone.status->code == 0 || gone.status->code == kPreempted);
    if (saved) {
      agreement_->left(rank);
      announce_agreed_step();
    } else if (!live_ranks().empty()) {  // the others would wait for it in vain
      act(agent_action::CancelTimer{AgentTimer::kSave});
      stop_now(SIGTERM, kept_for_stopping(settings_.shutdown_timeout));
    }
  }

  if (live_ranks().empty() && any_stuck()) {
    end_with_stuck_workers();
    return;
  }
  if (phase_ == Phase::kHolding) return;  // it is started anew with the next round
  if (live_ranks().empty() && phase_ != Phase::kSweeping) {
    act(agent_action::CancelTimer{AgentTimer::kSave});
    // A wrapper that died of the signal may leave a child that is following it just now: that has the rest of the time.
    const bool wrapper_died = stop_signal_ != 0 && std::any_of(workers_.begin(), workers_.end(), [this](const Worker& w) {
                                return w.status && w.status->signal == stop_signal_ && !w.killed;
                              });
    patient_sweep_ = phase_ == Phase::kStopping && wrapper_died && !gone.killed && settings_.shutdown_timeout.count() > 0;
    sweep();
  }
}

// Said once; whoever comes first, the guardian or the order to stop.
void AgentState::cut_off(double unanswered_s) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kSaving && phase_ != Phase::kStopping) return;
  reason_ = "the coordinator does not answer";
  if (!std::exchange(cut_off_, true)) emit(CutOff{round_, unanswered_s, now_.realtime_ns});
  kill_all();
}

void AgentState::stop_for_failure(int rank) {
  if (member()) report_failure(failure_of(rank), others_may_stay(rank));
  reason_ = "worker " + std::to_string(global(rank)) + (left_by_itself_ ? " was preempted" : " failed");
  if (!live_ranks().empty()) stop_now(SIGTERM, settings_.shutdown_timeout);
}

// Scripts get the signal itself; workers with a channel are asked to save, if all of them can be asked.
void AgentState::stop_by_signal(int signal) {
  if (!settings_.workers_have_channel) {
    stop_now(signal, settings_.shutdown_timeout);
    return;
  }
  const auto ranks = live_ranks();
  const bool all_listen = std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return worker(rank).said_hello; });
  if (all_listen && settings_.shutdown_timeout.count() > 0) {
    begin_saving();
  } else {
    stop_now(SIGTERM, settings_.shutdown_timeout);
  }
}

void AgentState::begin_saving() {
  phase_ = Phase::kSaving;
  dismiss_standbys();
  save_asked_ = true;
  const auto ranks = live_ranks();
  std::set<int> awaited;
  for (int rank : ranks) {
    ask_to_stop(worker(rank));
    if (!worker(rank).says_done) awaited.insert(rank);
  }
  const bool none_is_awaited = awaited.empty();
  agreement_.emplace(std::move(awaited));
  if (member() && none_is_awaited) act(agent_action::ReportSteps{-1});
  const milliseconds time = settings_.shutdown_timeout - kept_for_stopping(settings_.shutdown_timeout);
  act(agent_action::Tell{ranks, stop_message(Stop::Mode::kSave, time)});
  act(agent_action::SetTimer{AgentTimer::kSave, time});
}

void AgentState::announce_agreed_step() {
  if (agreed_step_ || !agreement_) return;
  const std::optional<std::int64_t> step = agreement_->step();
  if (!step) return;
  if (member()) {
    act(agent_action::ReportSteps{*step});  // other nodes' workers may be further
  } else {
    tell_step(*step);
  }
}

void AgentState::tell_step(std::int64_t step) {
  agreed_step_ = step;
  act(agent_action::Tell{live_ranks(), channel::StopAt{step}});
}

void AgentState::stop_now(int signal, milliseconds grace) {
  phase_ = Phase::kStopping;
  leave_regroup();
  dismiss_standbys();
  const auto ranks = live_ranks();
  for (int rank : ranks) ask_to_stop(worker(rank));
  if (grace.count() == 0) {
    kill_all();
    return;
  }
  if (settings_.workers_have_channel) act(agent_action::Tell{ranks, stop_message(Stop::Mode::kNow, grace)});
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
  if (!ranks.empty()) act(agent_action::SendSignal{ranks, SIGKILL});
}

void AgentState::sweep() {
  if (phase_ == Phase::kSweeping) patient_sweep_ = false;
  phase_ = Phase::kSweeping;
  leave_regroup();  // the last one may have ended in its middle
  dismiss_standbys();
  if (!patient_sweep_) act(agent_action::CancelTimer{AgentTimer::kKill});
  act(agent_action::Sweep{patient_sweep_});
}

// ---- judging a round that is over ----

// What they hold (a GPU, a port) is not free, so no round can follow; the guardian stays until the kernel lets go of them.
void AgentState::end_with_stuck_workers() {
  RoundFailed event = judge_round();
  const auto stuck = std::find_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.stuck.has_value(); });
  const int rank = static_cast<int>(stuck - workers_.begin());
  event.why = "a worker that cannot be killed holds what the next one would need";
  const std::string why = "worker " + std::to_string(rank) + ": " + *stuck->stuck;
  int exit_code = static_cast<int>(ExitCode::kInternal);                   // another machine may well do
  if (event.first.status) exit_code = event.first.status->as_exit_code();  // another one had failed before
  if (stop_signal_ != 0) exit_code = 128 + stop_signal_;
  emit(std::move(event));
  phase_ = Phase::kFinished;
  emit(RunEnded{exit_code, why, restarts_, now_.realtime_ns});
  act(agent_action::Finish{exit_code, true});
}

void AgentState::end_stopped_job() {
  const bool any_saved = std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) {
    return w.status && w.status->signal == 0 && w.status->code == kPreempted;
  });
  const bool all_saved = any_saved && std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) {
                           return w.status && w.status->signal == 0 && (w.status->code == kPreempted || w.status->code == 0);
                         });
  const std::string by = stop_signal_ != 0 ? "stopped by " + signal_name(stop_signal_) : "stopped by its workers";
  if (phase_ == Phase::kSweeping && first_failure_ && !left_by_itself_) {  // the job was failing when the signal came
    RoundFailed event = judge_round();
    event.why = by;
    emit(std::move(event));
  }
  if (left_by_itself_ || (all_saved && save_asked_)) {
    finish(kPreempted, by + " after saving: run it again to go on");
  } else {
    finish(128 + stop_signal_, by + (settings_.workers_have_channel ? " before it could save" : ""));
  }
}

void AgentState::end_failed_round() {
  if (fell_back_) {  // that failure is counted and told
    start_round();
    return;
  }
  RoundFailed event = judge_round();
  history_.push_back(record_of(event.first));
  const RestartDecision decision = decide_restart(history_, settings_.restarts);

  if (const auto* give_up = std::get_if<GiveUp>(&decision)) {
    event.why = give_up->why;
    const std::string why = "worker " + std::to_string(event.first.rank) + ": " + how_it_failed(event.first);
    emit(std::move(event));
    finish(give_up->exit_code, why + "; " + give_up->why);
    return;
  }

  const Restart& restart = std::get<Restart>(decision);
  event.decision = RoundFailed::Decision::kRestart;
  event.why = restart.why;
  if (restart.delay.count() > 0) event.why += " in " + std::to_string(restart.delay.count()) + " ms";
  emit(std::move(event));
  ++restarts_;
  if (restart.delay.count() == 0) {
    start_round();
  } else {
    phase_ = Phase::kPausing;
    act(agent_action::SetTimer{AgentTimer::kPause, restart.delay});
  }
}

void AgentState::finish(int exit_code, const std::string& why) {
  phase_ = Phase::kFinished;
  emit(RunEnded{exit_code, why, restarts_, now_.realtime_ns});
  act(agent_action::Finish{exit_code});
}

// ---- what is known about the workers ----

std::vector<int> AgentState::live_ranks() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].live && !workers_[rank].stuck) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

bool AgentState::any_stuck() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.stuck.has_value(); });
}

void AgentState::ask_to_stop(Worker& worker) {
  if (!worker.asked_to_stop) worker.asked_ns = now_.realtime_ns;
  worker.asked_to_stop = true;
}

channel::Stop AgentState::stop_message(Stop::Mode mode, milliseconds deadline) const {
  return {.mode = mode, .deadline_ms = deadline.count(), .reason = reason_};
}

}  // namespace ddprun
