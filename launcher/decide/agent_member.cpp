// The part of AgentState (agent_state.hpp) of a node of a job on many machines: what the coordinator orders, and what it is
// told at a round's end. Workers that wait between two rounds with their state: agent_hold.cpp.
#include <algorithm>
#include <csignal>
#include <utility>

#include "common/base/exit_code.hpp"
#include "common/base/signal_name.hpp"
#include "launcher/decide/agent_state.hpp"

namespace ddprun {

// ---- orders to a member ----

void AgentState::handle(const agent_event::RoundReleased& event) {
  if (!member()) return;
  if (dismissing_held_) {
    next_release_ = event;
    return;
  }
  if (phase_ != Phase::kIdle && phase_ != Phase::kHolding) return;
  const bool held = phase_ == Phase::kHolding;
  std::string why = event.restart_count == restarts_ ? "the job goes on with the nodes that are here"
                                                     : "restart " + std::to_string(event.restart_count) + " of the job";
  if (held) why += ": the others keep their state";
  tell_verdict(held ? RoundFailed::Decision::kRegroup : RoundFailed::Decision::kRestart, why);
  round_ = settings_.first_round + event.round - 1;
  round_generation_ = event.round;
  restarts_ = event.restart_count;
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
  if (event.failure && !verdict_ && !reported_) {
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
  if (dismissing_held_) refuse_release();
  if (phase_ != Phase::kRunning) return;
  reason_ = signal_name(event.signal);
  stop_when_together(event.signal);
}

void AgentState::handle(const agent_event::StepAgreed& event) {
  if (!member() || phase_ != Phase::kSaving || agreed_step_) return;
  tell_step(event.step);
}

void AgentState::handle(const agent_event::JobEnded& event) {
  if (!member()) return;
  if (phase_ == Phase::kHolding) dismiss_held(event.why);
  if (dismissing_held_) {
    job_over_ = event;
    return;
  }
  tell_verdict(RoundFailed::Decision::kGiveUp, event.why);
  finish(event.exit_code, event.why);
}

// ---- what the coordinator is told ----

void AgentState::report_failure(const Failure& failure, bool others_stay) {
  reported_ = failure;
  FailedRound record = record_of(failure);
  if (others_stay) {  // what is held is not lost
    for (const Worker& worker : workers_) record.newest_checkpoint = std::max(record.newest_checkpoint, worker.step);
  }
  act(agent_action::ReportFailure{failure, record, others_stay});
}

// What comes of it is the coordinator's to say; the evidence waits for that.
void AgentState::end_round_of_member() {
  using How = agent_action::ReportRoundOver::How;
  phase_ = Phase::kIdle;
  if (end_of_held()) return;
  const auto left_well = [](const Worker& w) { return w.status && w.status->ok(); };
  const auto saved = [](const Worker& w) {
    return w.status && w.status->signal == 0 &&
           (w.status->code == static_cast<int>(ExitCode::kPreempted) || w.status->code == 0);
  };
  // A script that ends well because it was told to stop has not done its work, and whether it saved is not known.
  const bool stopped = !settings_.workers_have_channel &&
                       std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.asked_to_stop; });
  if (!stopped && std::all_of(workers_.begin(), workers_.end(), left_well)) {
    act(agent_action::ReportRoundOver{How::kDone});
    return;
  }
  const bool all_saved = save_asked_ && std::all_of(workers_.begin(), workers_.end(), saved);
  const auto by_itself = [this](const Worker& w) { return failed(w) && blame(w) < 3; };
  if (!all_saved && std::any_of(workers_.begin(), workers_.end(), by_itself)) {
    RoundFailed event = judge_round();
    const bool known = reported_ && reported_->local_rank == event.first.local_rank && reported_->cause == event.first.cause;
    if (!known) report_failure(event.first, others_may_stay(event.first.local_rank));
    if (!verdict_) verdict_ = std::move(event);
  }
  agent_action::ReportRoundOver over{all_saved ? How::kSaved : How::kEnded};
  const bool may_be_tried = settings_.restarts.rules.of_cause[static_cast<std::size_t>(Cause::kDevice)].has_value();
  if (reported_ && reported_->cause == Cause::kDevice && !may_be_tried)
    over.leaves_with = record_of(*reported_).status.as_exit_code();
  act(over);
}

void AgentState::tell_verdict(RoundFailed::Decision decision, const std::string& why) {
  if (!verdict_) return;
  verdict_->decision = decision;
  verdict_->why = why;
  verdict_->time_ns = now_.realtime_ns;
  emit(*std::exchange(verdict_, std::nullopt));
}

}  // namespace ddprun
