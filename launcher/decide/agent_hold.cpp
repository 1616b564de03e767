// The part of AgentState (agent_state.hpp) of a node of a job on many machines whose workers outlive a round: they leave their
// group and wait with their state, the coordinator hears that the round is over here, and with the next release they are told
// their places in the new group while the missing ones are started. From there it is a regroup as on one machine
// (agent_regroup.cpp). Waiting has no end of its own: the next release or the end of the job comes, from this coordinator or
// from a successor.
//
//     running -> holding -- RoundReleased --> running, regrouping
//                holding -- JobEnded, or the coordinator says that nothing is to be kept --> stopping -> sweeping -> idle
#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/decide/agent_state.hpp"

namespace ddprun {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kGraceForHeld{5000};  // they have nothing to do but a checkpoint that is being written

}  // namespace

// Whether what the others hold is sound, whoever they are.
bool AgentState::others_may_stay(int lost) const {
  if (settings_.regroup_limit.count() == 0 || !settings_.workers_have_channel) return false;
  if (stop_signal_ != 0 || left_by_itself_) return false;
  const auto& error = workers_[static_cast<std::size_t>(lost)].error;
  return !error || !error->others_suspect;
}

bool AgentState::may_hold() const {
  return member() && settings_.regroup_limit.count() > 0 && regroupable_ && stop_signal_ == 0 && !live_ranks().empty();
}

// True when the others of this node wait; false: they have to be stopped.
bool AgentState::hold_after(int rank) {
  if (!may_hold() || !others_may_stay(rank)) return false;
  const Failure failure = failure_of(rank);
  if (failure.cause == Cause::kDevice) return false;  // this node leaves: the others of the other nodes wait
  report_failure(failure, true);
  if (!verdict_) verdict_ = judge_round();
  hold();
  return true;
}

void AgentState::hold() {
  phase_ = Phase::kHolding;
  held_since_ = now_;
  leave_regroup();
  act(agent_action::Tell{live_ranks(), channel::Hold{}});
  act(agent_action::ReportRoundOver{.how = agent_action::ReportRoundOver::How::kEnded});
}

void AgentState::continue_round() {
  begin_round();
  std::set<int> kept;
  std::set<int> missing;
  for (int rank = 0; rank < settings_.world_size; ++rank) (worker(rank).live ? kept : missing).insert(rank);
  for (const int rank : kept) {
    worker(rank).says_done = false;
    resumed_from_ = std::max(resumed_from_, worker(rank).step);
  }
  regroup_.emplace(round_generation_, missing, kept, held_since_.steady);
  act(agent_action::ContinueRound{round_, restarts_});
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
    act(agent_action::StartWorker{rank, round_, restarts_});
  }
  const auto as_at_first = std::chrono::ceil<milliseconds>(2 * came_up_in_);
  act(agent_action::SetTimer{AgentTimer::kRegroup, std::max(settings_.regroup_limit, as_at_first)});
}

void AgentState::handle(const agent_event::HeldDismissed& event) {
  if (phase_ == Phase::kHolding) dismiss_held(event.why);
}

// They are not wanted any more. What comes next waits until they are gone.
void AgentState::dismiss_held(const std::string& why) {
  dismissing_held_ = true;
  reason_ = why;
  if (live_ranks().empty()) {
    sweep();
  } else {
    stop_now(SIGTERM, std::min(settings_.shutdown_timeout, kGraceForHeld));
  }
}

// Of a round that has not begun here, and ends.
void AgentState::refuse_release() {
  if (!next_release_) return;
  next_release_.reset();
  act(agent_action::ReportRoundOver{.how = agent_action::ReportRoundOver::How::kEnded});
}

// True when it was those that were held: then the round's end was told before, and what has come meanwhile is due.
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

}  // namespace ddprun
