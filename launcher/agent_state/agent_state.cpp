// Implementation of agent_state.hpp.
//
// Note [Why this file is long]
// The file is one state machine: every function reads or changes the same phase. Code that does not depend on the phase is in
// separate files.
#include "launcher/agent_state/agent_state.hpp"

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/signal_name.hpp"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// Time between SIGTERM and SIGKILL after a failed regroup; short, since most of the workers hang.
constexpr milliseconds kGraceAfterRegroup{5000};
// Time between SIGTERM and SIGKILL for held workers. They need this time only to finish a checkpoint.
constexpr milliseconds kHeldGrace{5000};

}  // namespace

std::vector<AgentAction> AgentState::on(const AgentEvent& event, Instant now) {
  turn_.now = now;
  if (phase_ != Phase::kFinished) {
    std::visit([this](const auto& concrete) { handle(concrete); }, event);
  }
  return std::exchange(turn_.actions, {});
}

// The only function that changes the phase. It cancels the timers of the previous phase and kills standbys that no longer
// replace a worker. At the start of a round it resets the state of the previous round.
void AgentState::become(Phase next) {
  using enum Phase;
  static const std::map<Phase, std::set<Phase>> kAllowedAfter{
      {kIdle, {kSweeping}},
      {kRunning, {kIdle, kHolding, kSweeping, kPausing}},
      {kSaving, {kRunning, kHolding}},
      {kStopping, {kRunning, kSaving, kHolding}},
      {kHolding, {kRunning}},
      {kSweeping, {kRunning, kSaving, kStopping, kHolding, kSweeping}},
      {kPausing, {kSweeping}},
      {kFinished, {kIdle, kRunning, kSaving, kStopping, kHolding, kSweeping, kPausing}},
  };
  check(kAllowedAfter.at(next).contains(phase_), "invalid transition between two phases of the agent");
  const Phase previous = std::exchange(phase_, next);
  if (previous == kSaving) turn_.act(agent_action::CancelTimer{AgentTimer::kSave});
  if (previous == kStopping) turn_.act(agent_action::CancelTimer{AgentTimer::kKill});
  if (previous == kPausing) turn_.act(agent_action::CancelTimer{AgentTimer::kPause});
  if (previous == kRunning) {
    recovery_.leave();
    stop_.round.deferred_signal = 0;
  }
  if (next == kSaving || next == kStopping || next == kSweeping) standbys_.dismiss();
  if (next == kRunning) {
    round_.begin();
    stop_.round = RoundStop{};
    reported_.reset();
    script_printed_ = false;
  }
}

void AgentState::become_saving(const std::vector<int>& ranks) {
  become(Phase::kSaving);
  stop_.order_save(ranks);
}

void AgentState::become_stopping(int signal, milliseconds grace) {
  become(Phase::kStopping);
  stop_.order_stop(signal, grace);
}

void AgentState::become_holding(std::vector<int> ranks, bool for_stop) {
  become(Phase::kHolding);
  held_.hold(std::move(ranks), for_stop);
}

void AgentState::become_sweeping() {
  check(workers_.live().empty(), "the leftover processes of a round are killed while a worker is still running");
  become(Phase::kSweeping);
  order_sweep();
}

// ---- events ----

void AgentState::handle(const agent_event::Begin&) {
  check(phase_ == Phase::kIdle, "the job was started a second time");
  started_ = turn_.now.steady;
  turn_.emit(RunStarted{turn_.now.realtime_ns, settings_.world_size});
  if (!settings_.is_member()) start_round();
}

void AgentState::handle(const agent_event::WorkerExited& event) {
  if (!workers_.end(event)) return;
  const int rank = event.rank;
  // If this value is set, the guardian killed the worker because the coordinator did not answer. This is a stop, not a failure
  // of the worker.
  if (event.unanswered_s) {
    cut_off(*event.unanswered_s);
    workers_.request_stop({rank});
    workers_.at(rank).killed = true;
  }
  turn_.emit(WorkerEnded{workers_.global(rank), event.pid, event.status, workers_.at(rank).stop_requested, event.time_ns});
  worker_gone(rank);
}

void AgentState::handle(const agent_event::SpawnFailed& event) {
  if (workers_.end(event)) worker_gone(event.rank);
}

void AgentState::handle(const agent_event::WorkerMessageReceived& event) {
  const int rank = event.rank;
  workers_.note(rank, event.message);
  std::visit(Overloaded{[&](const channel::RegroupReady& message) { recovery_.on_ready(rank, message); },
                        [&](const channel::PhaseChange& message) { on_message(rank, message); },
                        [&](const channel::SignalReceived& message) { on_message(rank, message); },
                        [&](const channel::StopReady& message) {
                          if (phase_ == Phase::kSaving) stop_.on_ready(rank, message.started);
                        },
                        [&](const channel::GroupFormed& message) { on_message(rank, message); },
                        Ignored<channel::Hello, channel::SavesOnStop, channel::Regroupable, channel::Progress,
                                channel::CheckpointPublished, channel::WorkerError, channel::EvalResult, channel::Pace,
                                channel::StandbyReady, channel::Position, channel::StoreRequest>{}},
             event.message);
  start_missing_standbys();
}

void AgentState::on_message(int rank, const channel::PhaseChange& message) {
  WorkerRecord& sender = workers_.at(rank);
  if (message.phase == channel::Phase::kSaving && stop_.round.agreed_step && sender.saves_on_stop) sender.saves_now = true;
  if (sender.reported_done) stop_.leave(rank);
}

// Handles a worker's message that it has received a signal.
// - During a save or stop: the agent has already ordered the worker to save or stop, and sends its Stop message again.
// - ddptrain during training: the worker must ignore the signal. If the signal was sent to all processes, the agent has
//   received it too and will send a Stop message.
// - A script during training: the signal stops the whole job, since schedulers, systemd and `kill` also signal scripts
//   directly. Without ddprun's helper in the script, the signal would have killed the worker.
void AgentState::on_message(int rank, const channel::SignalReceived& message) {
  const bool runs = phase_ == Phase::kRunning;
  if (phase_ == Phase::kSaving) {
    stop_.repeat_order(rank, channel::Stop::Mode::kSave);
  } else if (phase_ == Phase::kStopping) {
    stop_.repeat_order(rank, channel::Stop::Mode::kNow);
  } else if (runs && !settings_.workers_have_channel) {
    if (stop_.signal == 0) stop_job(message.signal, StopRequested::Effect::kStops);
  } else if (runs || phase_ == Phase::kHolding) {
    turn_.act(agent_action::SendMessage{{rank}, channel::IgnoreSignal{message.signal}});
  }
}

void AgentState::on_message(int rank, const channel::GroupFormed& message) {
  const auto step = recovery_.on_formed(rank, message);
  if (!step) return;
  round_.note_first_step(*step);
  const int signal = std::exchange(stop_.round.deferred_signal, 0);
  if (signal != 0) stop_by_signal(signal);
}

// Only a second signal from the keyboard (Ctrl-C) kills the workers. A repeated SIGTERM has no effect, since schedulers repeat
// it (Slurm at a time limit) and it must not interrupt the save.
void AgentState::handle(const agent_event::SignalArrived& event) {
  const bool from_keyboard = event.signal == SIGINT || event.signal == SIGQUIT;
  const bool repeated_interrupt = from_keyboard && ++keyboard_signals_ >= 2;
  using Effect = StopRequested::Effect;
  if (stop_.signal == 0) return stop_job(event.signal, repeated_interrupt ? Effect::kKills : Effect::kStops);
  turn_.emit(StopRequested{event.signal, repeated_interrupt ? Effect::kKills : Effect::kNothingNew, turn_.now.realtime_ns});
  // In this phase the coordinator has not yet answered the first signal.
  if (settings_.is_member() && (phase_ == Phase::kIdle || phase_ == Phase::kHolding)) {
    handle(agent_event::JobEnded{128 + event.signal, "stopped by " + signal_name(event.signal)});
    if (repeated_interrupt && held_.are_dismissed()) kill_all();
  } else if (repeated_interrupt && phase_ == Phase::kSweeping) {
    stop_.round.kills_leftovers = true;
    order_sweep();
  } else if (repeated_interrupt) {
    kill_all();
  }
}

// Sends the signal that the worker requested for this timer. If the worker then exits, its exit is handled as a failure.
void AgentState::handle(const agent_event::TimerExpired& event) {
  WorkerRecord& timed_out = workers_.at(event.rank);
  if (!timed_out.live || (phase_ != Phase::kRunning && phase_ != Phase::kSaving)) return;
  timed_out.timer_expired = event.message;
  turn_.act(agent_action::SendSignal{{event.rank}, event.signal});
}

// Kills the workers that cause the hang. Their exits are then handled as failures.
void AgentState::handle(const agent_event::HangFound& event) {
  if (phase_ != Phase::kRunning) return;
  const std::vector<int> blamed = workers_.note(event);
  if (!blamed.empty()) turn_.act(agent_action::SendSignal{blamed, SIGKILL});
}

void AgentState::handle(const agent_event::WorkerStuck& event) {
  WorkerRecord& stuck = workers_.at(event.rank);
  const bool round_continues = phase_ == Phase::kRunning || phase_ == Phase::kSaving || phase_ == Phase::kStopping;
  if (!stuck.is_awaited() || !round_continues) return;
  stuck.stuck = event.message;
  stuck.pid = event.pid;
  stuck.ended_ns = turn_.now.realtime_ns;
  // SIGKILL takes effect only when the worker leaves uninterruptible sleep.
  turn_.act(agent_action::SendSignal{{event.rank}, SIGKILL});
  if (workers_.live().empty()) {
    end_job();
  } else if (phase_ != Phase::kStopping) {
    stop_for_failure(event.rank);
  }
}

void AgentState::handle(const agent_event::StandbyReady& event) {
  standbys_.ready(event.number);
  start_missing_spares();
}

void AgentState::handle(const agent_event::ScriptPrinted&) {
  script_printed_ = true;
  start_missing_spares();
}

// Replaces a spare interpreter that became a worker but does not answer. A new process gets its rank in the same round.
void AgentState::handle(const agent_event::SpareUnresponsive& event) {
  if (phase_ == Phase::kRunning && workers_.at(event.rank).live) turn_.act(round_.new_worker(event.rank));
}

void AgentState::handle(const agent_event::TimerFired& event) {
  using enum AgentTimer;
  const AgentTimer timer = event.timer;
  if (timer == kSave && phase_ == Phase::kSaving) become_stopping(SIGTERM, stop_.reserve());
  if (timer == kKill && phase_ == Phase::kStopping) kill_all();
  if (timer == kPause && phase_ == Phase::kPausing) start_round();
  if (timer == kReplace) recovery_.start_replacements();
  if (timer == kRegroup && recovery_.is_pending()) {
    const bool saves = stop_.round.deferred_signal != 0 && save_with_survivors();
    if (!saves) give_up_regroup("not all workers rejoined in time");
  }
  if (timer == kSpares) {
    script_printed_ = true;
    start_missing_spares();
    standbys_.extend_timer();
  }
}

// Only the first failure of the agent is handled, and a stop that has already started continues. The workers of a multi-node
// job do not save: they would have to agree on a step with the other nodes, which have the same state and continue.
void AgentState::handle(const agent_event::AgentFailed& event) {
  if (stop_.agent_failure) return;
  stop_.agent_failure = event;
  stop_.reason = "ddprun has failed";
  workers_.end_all_except(event.running);
  if (phase_ == Phase::kIdle || phase_ == Phase::kPausing) return end_job();
  const bool regroups = recovery_.is_pending();
  const std::set<int> survivors = recovery_.survivors();
  recovery_.leave();
  // If a sweep is in progress, it is ordered again, since the error may have prevented the first order.
  if (phase_ == Phase::kSweeping || workers_.live().empty()) return become_sweeping();
  if (phase_ == Phase::kHolding) return become_stopping(SIGTERM, std::min(settings_.shutdown_timeout, kHeldGrace));
  if (phase_ != Phase::kRunning) return;
  if (!settings_.is_member() && !regroups) return stop_by_signal(SIGTERM);
  if (!settings_.is_member() && save_without_lost(survivors)) return;
  become_stopping(SIGTERM, settings_.shutdown_timeout);
}

void AgentState::handle(const agent_event::RoundSwept&) {
  if (phase_ != Phase::kSweeping) return;
  if (settings_.is_member() && !stop_.agent_failure) return end_round_of_member();
  if (const auto ending = ending_of(end_facts())) return finish(*ending);
  if (stop_.round.fell_back) return start_round();  // The failure that led to the regroup was already counted and reported.
  RoundFailed event = round_.judged();
  const rendezvous::Verdict verdict = round_.verdict_on(event.first);
  if (const auto ending = ending_of(end_facts(verdict))) return finish(*ending);
  round_.restart(std::move(event), RoundFailed::Decision::kRestart, verdict);
  if (verdict.delay.count() == 0) return start_round();
  become(Phase::kPausing);
  turn_.act(agent_action::SetTimer{AgentTimer::kPause, verdict.delay});
}

// ---- a round ----

void AgentState::start_round() {
  become(Phase::kRunning);
  workers_.start_all();
  recovery_.begin_round();
  // StartRound is the first action. So the processes start before observers spend time on RoundStarted.
  turn_.act(agent_action::StartRound{round_.number(), round_.restart_count(), round_.restart_facts(),
                                     standbys_.begin_round(workers_)});
  round_.announce(false);
}

void AgentState::worker_gone(int rank) {
  WorkerRecord& gone = workers_.at(rank);
  gone.stuck.reset();  // this worker counted as unkillable, but it has exited now
  standbys_.release(gone);
  round_.note_end(gone);
  // If a worker exits with 0 during a regroup, its rank has no worker. So the new group cannot form, and the regroup ends.
  // During a save, a worker that exits with 0 or kPreempted no longer takes part in the agreement on a step. After any other
  // exit the remaining workers are stopped.
  if (phase_ == Phase::kRunning && gone.has_failed()) {
    lose(rank);
  } else if (phase_ == Phase::kRunning && recovery_.is_pending()) {
    give_up_regroup("rank " + std::to_string(workers_.global(rank)) + " has ended");
  } else if (phase_ == Phase::kSaving && !gone.abandoned) {
    if (gone.ended_well()) {
      stop_.leave(rank);
    } else if (!workers_.live().empty()) {
      become_stopping(SIGTERM, stop_.reserve());
    }
  }

  if (!workers_.live().empty()) return;
  if (workers_.stuck()) return end_job();
  // Held workers have kept their state and wait for the next round, which starts the lost workers again. So the phase stays
  // kHolding.
  if (phase_ != Phase::kHolding && phase_ != Phase::kSweeping) become_sweeping();
}

// Handles a worker that failed while the round was running.
void AgentState::lose(int rank) {
  WorkerRecord& lost = workers_.at(rank);
  stop_.round.self_preempted = settings_.workers_have_channel && lost.exited_preempted();
  const bool state_is_valid = !lost.error || !lost.error->others_suspect;
  if (stop_.round.deferred_signal != 0 && state_is_valid && save_with_survivors()) {
    lost.abandoned = true;  // The deferred stop no longer waits: the other workers save without a replacement.
  } else if (!replace(rank) && !hold_after(rank)) {
    stop_for_failure(rank);
  }
}

void AgentState::stop_for_failure(int rank) {
  if (settings_.is_member()) report_failure(worker_failure(workers_, rank));
  const char* end = stop_.round.self_preempted ? " was preempted" : " failed";
  stop_.reason = "worker " + std::to_string(workers_.global(rank)) + end;
  if (!workers_.live().empty()) become_stopping(SIGTERM, settings_.shutdown_timeout);
}

// Stops the workers because the coordinator does not answer. The events WorkerExited and StopOrdered may both report this, but
// CutOff is emitted only once.
void AgentState::cut_off(double unanswered_s) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kSaving && phase_ != Phase::kStopping) return;
  stop_.reason = "the coordinator does not answer";
  if (!std::exchange(stop_.round.cut_off, true)) turn_.emit(CutOff{round_.number(), unanswered_s, turn_.now.realtime_ns});
  kill_all();
}

// Handles the first signal that stops the job. This function is not called for further signals.
void AgentState::stop_job(int signal, StopRequested::Effect effect) {
  turn_.emit(StopRequested{signal, effect, turn_.now.realtime_ns});
  stop_.signal = signal;
  // The workers may have received the signal earlier than the agent. They may have exited while their child processes still
  // save. Another sweep order gives these processes the full shutdown timeout.
  if (phase_ == Phase::kSweeping) order_sweep();
  if (settings_.is_member()) {
    const bool can_save = (settings_.workers_have_channel || workers_.all_can_save()) && settings_.shutdown_timeout.count() > 0;
    turn_.act(agent_action::ReportSignal{signal, can_save && !can_regroup()});
  } else if (phase_ == Phase::kRunning) {
    stop_.reason = signal_name(signal);
    stop_after_regroup(signal);
  } else if (phase_ == Phase::kPausing || phase_ == Phase::kIdle) {
    end_job();
  }  // In the other phases the workers are already stopping, and stop_.signal prevents a next round.
}

// Orders the workers to save if all of them can: ddptrain always can, and a script can after it has sent SavesOnStop. Otherwise
// the workers are stopped: scripts with `signal`, ddptrain with SIGTERM.
void AgentState::stop_by_signal(int signal) {
  if (workers_.all_can_save() && settings_.shutdown_timeout.count() > 0) {
    become_saving(workers_.live());
  } else {
    become_stopping(settings_.workers_have_channel ? SIGTERM : signal, settings_.shutdown_timeout);
  }
}

void AgentState::kill_all() {
  if (phase_ == Phase::kRunning || phase_ == Phase::kSaving) become(Phase::kStopping);
  stop_.kill_all();
}

void AgentState::order_sweep() {
  agent_action::Sweep order = stop_.sweep_order();
  order.next_round = order.how == agent_action::Sweep::How::kEnd && next_round_follows();
  turn_.act(order);
}

// Predicts whether another round follows the sweep. The sweep then waits only for leftover processes that hold resources which
// the next round needs.
bool AgentState::next_round_follows() const {
  if (workers_.all_ok() || stop_.round.self_preempted || stop_.round.without_lost) return false;
  return settings_.is_member() || stop_.round.fell_back || round_.verdict_on(round_.judged().first).restart;
}

// AgentState calls this after each message of a worker. Messages arrive in any order, and any of them may fulfil the last
// condition for the start of standbys.
void AgentState::start_missing_standbys() {
  if (settings_.keeps_spares() || phase_ != Phase::kRunning || stop_.signal != 0) return;
  if (!workers_.regroupable() || !round_.first_step() || recovery_.is_pending()) return;
  const auto trains = [this](const WorkerRecord& worker) { return worker.step > *round_.first_step(); };
  if (std::ranges::any_of(workers_.all(), trains)) standbys_.start_missing();
}

void AgentState::start_missing_spares() {
  const bool may_start = settings_.keeps_spares() && script_printed_;
  if (may_start && phase_ == Phase::kRunning && stop_.signal == 0) standbys_.start_missing();
}

// ---- a round's end ----

EndFacts AgentState::end_facts(std::optional<rendezvous::Verdict> verdict) const {
  return {workers_, stop_, round_, phase_ == Phase::kSweeping, std::move(verdict)};
}

// Ends the job if a reason other than the restart policy's verdict requires it.
void AgentState::end_job() {
  const std::optional<JobEnding> ending = ending_of(end_facts());
  finish(existing(ending, "expected a recorded reason for the end of the job, found none"));
}

void AgentState::finish(const JobEnding& ending) {
  if (ending.round_failed) {
    RoundFailed event = round_.judged();
    event.why = *ending.round_failed;
    turn_.emit(std::move(event));
  }
  become(Phase::kFinished);
  turn_.emit(RunEnded{ending.exit_code, ending.why, round_.restart_count(), turn_.now.realtime_ns,
                      std::chrono::duration<double>(turn_.now.steady - started_).count()});
  turn_.act(agent_action::Finish{ending.exit_code, ending.abandons});
}

// ---- a lost worker ----

//
// With live recovery the other workers keep their processes and their state. The restart policy decides whether the lost worker
// is replaced, and when.

// Returns true if the other workers may keep their processes and state after the worker of rank `lost` has failed.
bool AgentState::others_may_stay(int lost) const {
  if (settings_.regroup_limit.count() == 0 || !(settings_.workers_have_channel || workers_.regroupable())) return false;
  if (stop_.signal != 0 || stop_.round.self_preempted) return false;
  const auto& error = workers_.at(lost).error;
  return !error || !error->others_suspect;
}

// Replaces a lost worker by a regroup. Returns false if the round must end.
bool AgentState::replace(int rank) {
  if (settings_.is_member() || !workers_.regroupable() || !others_may_stay(rank)) return false;
  const std::set<int> alive = recovery_.others();
  if (alive.empty()) return false;
  if (recovery_.absorb(rank)) {
    round_.forget_failure();
    return true;
  }

  RoundFailed event = round_.judged();
  const rendezvous::Verdict verdict = round_.verdict_on(event.first);
  // If the verdict is against a restart, it is not applied yet: at the end of the round the failure is judged again, with more
  // evidence.
  if (!verdict.restart) return verdict.others_save && save_without_lost(alive);
  round_.begin_regroup();
  recovery_.replace(rank, alive, verdict.after.restart_count);
  round_.restart(std::move(event), RoundFailed::Decision::kRegroup, verdict);
  round_.announce(true);
  recovery_.replace_lost(verdict.delay);
  return true;
}

// Ends the job without a replacement for a lost worker. The other workers form a smaller group, agree on a step as at any other
// stop, and save. A replacement that is still loading is killed, since it has no state.
bool AgentState::save_without_lost(const std::set<int>& alive) {
  if (settings_.shutdown_timeout.count() == 0 || alive.empty()) return false;
  recovery_.abandon_replacements(alive);
  stop_.round.without_lost = settings_.is_member() || stop_.signal == 0;
  if (stop_.signal == 0 && !stop_.agent_failure) stop_.reason = "a worker cannot be replaced";
  const int newest = settings_.is_member() ? round_.release().round : round_.restart_count();
  recovery_.form_group(alive, newest + 1);  // a generation number that no other group has
  become_saving({alive.begin(), alive.end()});
  return true;
}

// Saves with the surviving workers when a stop arrives during a regroup and the replacement is late or has failed. Returns
// false if no worker has the state or there is no time to save. In a multi-node job, other nodes may have the same state, but
// only one may write the checkpoint. So the workers wait until the coordinator orders one node to save (SaveOrdered).
bool AgentState::save_with_survivors() {
  const std::set<int> alive = recovery_.survivors();
  if (!settings_.is_member()) return save_without_lost(alive);
  if (settings_.shutdown_timeout.count() == 0 || alive.empty()) return false;
  recovery_.abandon_replacements(alive);
  become_holding({alive.begin(), alive.end()}, /*for_stop=*/true);
  return true;
}

// Stops the job after a signal. During a regroup the stop is deferred until the new group has formed, so that all its workers
// can save together. If the replacement has not started yet, the other workers save without it.
void AgentState::stop_after_regroup(int signal) {
  if (!recovery_.is_pending() || settings_.shutdown_timeout.count() == 0) return stop_by_signal(signal);
  if (recovery_.is_paused() && save_with_survivors()) return;
  stop_.round.deferred_signal = signal;
  stop_.round.deferred_since = turn_.now.steady;
  turn_.act(agent_action::SetTimer{AgentTimer::kRegroup, settings_.shutdown_timeout / 2});
}

// Ends a regroup that failed. All workers are stopped, and the next round starts from the newest checkpoint.
void AgentState::give_up_regroup(const std::string& why) {
  recovery_.leave();
  stop_.round.fell_back = true;
  stop_.reason = why;
  // RegroupFailed announces a restart, so it is not emitted during a stop
  if (std::exchange(stop_.round.deferred_signal, 0) == 0) {
    turn_.emit(RegroupFailed{round_.number(), why, turn_.now.realtime_ns});
  }
  if (!workers_.live().empty()) become_stopping(SIGTERM, std::min(settings_.shutdown_timeout, kGraceAfterRegroup));
}

// ---- orders to a member, from the coordinator ----

void AgentState::handle(const agent_event::RoundReleased& event) {
  if (held_.delay(event)) return;
  if (phase_ != Phase::kIdle && phase_ != Phase::kHolding) return;
  const bool held = phase_ == Phase::kHolding;
  std::string why = event.restart_count == round_.restart_count()
                        ? "the job continues with the nodes that are present"
                        : "restart " + std::to_string(event.restart_count) + " of the job";
  const auto holds = [](const WorkerRecord& worker) { return worker.live && worker.step >= 0; };
  if (held && std::ranges::any_of(workers_.all(), holds)) why += ": workers of the other ranks keep their state";
  publish_verdict(held ? RoundFailed::Decision::kRegroup : RoundFailed::Decision::kRestart, why);
  round_.set_release(event);
  workers_.set_first_rank(event.rank_offset);
  if (event.round > 1) workers_.note_training();  // this node may have joined a job that has run training steps before
  return held ? continue_round() : start_round();
}

void AgentState::handle(const agent_event::StopOrdered& event) {
  if (event.failure && !verdict_ && !reported_) {
    verdict_ = RoundFailed{};
    verdict_->round = round_.number();
    verdict_->first = *event.failure;
  }
  held_.refuse_release();
  if (phase_ != Phase::kRunning && phase_ != Phase::kSaving && phase_ != Phase::kStopping) return;
  if (event.unanswered_s) return cut_off(*event.unanswered_s);
  stop_.reason = event.why;
  // Workers are held even after a signal, because the coordinator knows the signal and may then order the held workers to save.
  if (event.hold && phase_ == Phase::kRunning && can_regroup()) return become_holding(workers_.live());
  if (event.immediately) {
    kill_all();
  } else if (phase_ != Phase::kStopping) {
    become_stopping(SIGTERM, settings_.shutdown_timeout);
  }
}

// If `held` is set, no round follows for the held workers, so they save their state. A node without held workers reports the
// end of its round immediately, and the coordinator orders another node to save.
void AgentState::handle(const agent_event::SaveOrdered& event) {
  if (event.held) {
    std::set<int> waiting;
    for (const int rank : workers_.live()) {
      if (!workers_.at(rank).abandoned) waiting.insert(rank);
    }
    if (phase_ != Phase::kHolding || !save_without_lost(waiting)) held_.report_round_over();
    return;
  }
  held_.refuse_release();
  if (phase_ != Phase::kRunning) return;
  stop_.reason = signal_name(event.signal);
  stop_after_regroup(event.signal);
}

void AgentState::handle(const agent_event::StepAgreed& event) {
  if (phase_ == Phase::kSaving && !stop_.round.agreed_step) stop_.agree_on(event.step);
}

void AgentState::handle(const agent_event::JobEnded& event) {
  if (stop_.agent_failure) return;
  stop_.job_over = event;
  if (phase_ == Phase::kHolding) dismiss_held(event.why);
  if (held_.are_dismissed()) return;
  publish_verdict(RoundFailed::Decision::kGiveUp, event.why);
  end_job();
}

// ---- reports to the coordinator ----

void AgentState::report_failure(const Failure& failure) {
  check(settings_.is_member(),
        "expected a job on several machines: a job on a single machine has no coordinator to report a failure to");
  reported_ = failure;
  turn_.act(agent_action::ReportFailure{failure, round_.record_of(failure), others_may_stay(failure.local_rank)});
}

// Ends the round on a node of a multi-node job. The coordinator decides what follows; verdict_ stores the failure until the
// coordinator's decision arrives.
void AgentState::end_round_of_member() {
  const auto how = round_end_of(end_facts());
  become(Phase::kIdle);
  const auto release = held_.take_release();
  if (held_.end()) {  // the end of this round was reported when its workers were held
    if (stop_.job_over) {
      handle(agent_event::JobEnded{*stop_.job_over});
    } else if (release) {
      handle(*release);
    }
    return;
  }
  using How = agent_action::ReportRoundOver::How;
  if (how == How::kEnded && round_.any_by_itself()) {
    RoundFailed event = round_.judged();
    const bool known = reported_ && reported_->local_rank == event.first.local_rank && reported_->cause == event.first.cause;
    if (!known) report_failure(event.first);
    if (!verdict_) verdict_ = std::move(event);
  }
  agent_action::ReportRoundOver over{how};
  const bool leaves = how != How::kDone && reported_ && reported_->cause == Cause::kDevice &&
                      is_unrecoverable(Cause::kDevice, settings_.restarts.rules);
  if (leaves) over.leaves_with = round_.record_of(*reported_).status.as_exit_code();
  turn_.act(over);
}

void AgentState::publish_verdict(RoundFailed::Decision decision, const std::string& why) {
  if (!verdict_) return;
  verdict_->decision = decision;
  verdict_->why = why;
  verdict_->time_ns = turn_.now.realtime_ns;
  turn_.emit(*std::exchange(verdict_, std::nullopt));
}

// ---- holding ----

// Holds the surviving workers after the loss of `rank`: they leave their process group, keep their state and wait for the next
// round. Returns false if they must be stopped instead.
bool AgentState::hold_after(int rank) {
  if (!settings_.is_member() || !can_regroup() || workers_.live().empty() || !others_may_stay(rank)) return false;
  const Failure failure = worker_failure(workers_, rank);
  // If its device has failed, this node leaves the job. Workers of other nodes may still be held.
  if (failure.cause == Cause::kDevice) return false;
  report_failure(failure);
  if (!verdict_) verdict_ = round_.judged();
  become_holding(workers_.live());
  return true;
}

// Continues with the held workers in the round that the coordinator has started.
void AgentState::continue_round() {
  become(Phase::kRunning);
  turn_.act(agent_action::ContinueRound{round_.number(), round_.restart_count()});
  recovery_.continue_held(held_.since());
  round_.announce(true);
  recovery_.replace_lost(milliseconds{0});
}

void AgentState::handle(const agent_event::HeldDismissed& event) {
  if (phase_ == Phase::kHolding) dismiss_held(event.why);
}

// Stops the held workers, since no round will use their state. The next RoundReleased or JobEnded is handled after they have
// exited.
void AgentState::dismiss_held(const std::string& why) {
  held_.dismiss();
  stop_.reason = why;
  if (workers_.live().empty()) {
    become_sweeping();
  } else {
    become_stopping(SIGTERM, std::min(settings_.shutdown_timeout, kHeldGrace));
  }
}

}  // namespace ddprun
