// The part of AgentState (agent_state.hpp) that answers a lost worker without ending the round of the others. The same policy
// as for a restart says whether and when; regroup.hpp keeps the books.
#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/decide/agent_state.hpp"

namespace ddprun {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kGraceAfterRegroup{5000};  // for those that did not follow: most of them hang

}  // namespace

// True when the lost worker is being replaced; false: the round has to end.
bool AgentState::replace(int rank) {
  if (member() || !regroupable_ || !others_may_stay(rank)) return false;
  std::set<int> alive;
  for (const int other : live_ranks()) alive.insert(other);
  for (const int coming : successors_) alive.erase(coming);
  const bool all_others = static_cast<int>(alive.size() + successors_.size()) == settings_.world_size - 1;
  if (alive.empty() || !all_others) return false;

  if (regroup_ && regroup_->also_lost(rank)) {
    expect_anew(rank);
    first_failure_.reset();
    const bool waits = !successors_.empty();  // for the pause before the first one's start
    successors_.insert(rank);
    if (!waits) start_successors();
    return true;
  }

  if (regroup_ && was_still_standby(rank)) {
    expect_anew(rank);
    first_failure_.reset();
    successors_.insert(rank);
    start_successors();
    return true;
  }

  RoundFailed event = judge_round();
  FailedRound record = record_of(event.first);
  for (const Worker& other : workers_) record.newest_checkpoint = std::max(record.newest_checkpoint, other.step);
  history_.push_back(record);
  const RestartDecision decision = decide_restart(history_, settings_.restarts);
  if (std::holds_alternative<GiveUp>(decision)) {
    history_.pop_back();  // the round's end judges it once more, with all that is known then
    return false;
  }
  const Restart& restart = std::get<Restart>(decision);
  const milliseconds pause = restart.delay;

  ++restarts_;
  ++round_;
  regroup_.emplace(restarts_, std::set<int>{rank}, alive, now_.steady);
  agent_action::Tell order{.ranks = {alive.begin(), alive.end()}, .message = channel::Regroup{.generation = restarts_}};
  act(std::move(order));
  event.decision = RoundFailed::Decision::kRegroup;
  event.why = restart.why + ": the others keep their state";
  if (pause.count() > 0) event.why += " in " + std::to_string(pause.count()) + " ms";
  emit(std::move(event));
  announce_round(true);
  expect_anew(rank);
  round_started_ = now_;
  began_at_.reset();
  first_failure_.reset();
  resumed_from_ = record.newest_checkpoint;
  successors_.insert(rank);
  const auto as_at_first = std::chrono::ceil<milliseconds>(2 * came_up_in_);  // much data may have to be loaded
  act(agent_action::SetTimer{AgentTimer::kRegroup, std::max(settings_.regroup_limit, as_at_first) + pause});
  if (pause.count() > 0) {
    act(agent_action::SetTimer{AgentTimer::kReplace, pause});
  } else {
    start_successors();
  }
  return true;
}

void AgentState::expect_anew(int rank) {
  worker(rank) = Worker{};
  worker(rank).live = true;
}

void AgentState::start_successors() {
  if (!regroup_) return;
  for (const int rank : std::exchange(successors_, {})) {
    worker(rank).standby = standbys_.take();
    if (const auto& standby = worker(rank).standby) {
      worker(rank).said_hello = true;
      act(agent_action::TakeOver{*standby, rank, round_, restarts_});
    } else {
      act(agent_action::StartWorker{rank, round_, restarts_});
    }
  }
}

void AgentState::hear(int rank, const channel::RegroupReady& message) {
  if (!regroup_) return;
  regroup_->ready(rank, message.generation, message.step);
  worker(rank).step = std::max(worker(rank).step, message.step);
  if (message.generation == regroup_->generation()) resumed_from_ = std::max(resumed_from_, message.step);
}

void AgentState::hear(int rank, const channel::Regrouped& message) {
  worker(rank).step = std::max(worker(rank).step, message.step);
  if (!regroup_) {
    came_up_in_ = now_.steady - round_started_.steady;
    if (together_.insert(rank).second && static_cast<int>(together_.size()) == settings_.world_size) began_at_ = message.step;
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
  resumed_from_ = std::max(resumed_from_, regroup_->step());
  began_at_ = regroup_->step();
  const int signal = stops_when_together_;
  leave_regroup();
  if (signal != 0) stop_by_signal(signal);
}

// Those that are together can save.
void AgentState::stop_when_together(int signal) {
  if (!regroup_ || settings_.shutdown_timeout.count() == 0) return stop_by_signal(signal);
  stops_when_together_ = signal;
  act(agent_action::SetTimer{AgentTimer::kRegroup, settings_.shutdown_timeout / 2});
}

void AgentState::leave_regroup() {
  if (!regroup_) return;
  regroup_.reset();
  stops_when_together_ = 0;
  for (const int rank : std::exchange(successors_, {})) worker(rank).live = false;  // never started
  act(agent_action::CancelTimer{AgentTimer::kRegroup});
  act(agent_action::CancelTimer{AgentTimer::kReplace});
}

// Back to what a failure means without all this: everybody is stopped, and the next round begins with the newest checkpoint.
void AgentState::give_up_regroup(const std::string& why) {
  leave_regroup();
  fell_back_ = true;
  reason_ = why;
  emit(RegroupFailed{round_, why, now_.realtime_ns});
  if (!live_ranks().empty()) stop_now(SIGTERM, std::min(settings_.shutdown_timeout, kGraceAfterRegroup));
}

}  // namespace ddprun
