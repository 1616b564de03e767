// The part of AgentState (agent_state.hpp) that keeps standby workers at hand, for regrouping to take (agent_regroup.cpp). They
// are started once a step is finished, so that they slow down neither the way to a round's first step nor the way from a loss
// to the next one; they go with the round, and what becomes of them meanwhile is no failure of the job. standbys.hpp keeps the
// books.
#include <algorithm>

#include "launcher/decide/agent_state.hpp"

namespace ddprun {

// After each word of a worker. Workers are heard in any order: the first step may be known before all have said that they are
// together.
void AgentState::start_missing_standbys() {
  if (!standbys_.wanted() || !regroupable_ || !began_at_ || regroup_) return;
  if (phase_ != Phase::kRunning || stop_signal_ != 0) return;
  const bool training = std::any_of(workers_.begin(), workers_.end(), [this](const Worker& w) { return w.step > *began_at_; });
  if (!training) return;
  for (const int number : standbys_.start_missing(now_.steady)) act(agent_action::StartStandby{number});
}

// The round ends, and nobody will be replaced in it.
void AgentState::dismiss_standbys() {
  if (!standbys_.any()) return;
  standbys_.clear();
  act(agent_action::DismissStandbys{});
}

void AgentState::handle(const agent_event::StandbyReady& event) {
  standbys_.ready(event.number, now_.steady);
}

void AgentState::handle(const agent_event::StandbyGone& event) {
  const auto pause = standbys_.gone(event.number, now_.steady);
  if (!pause) return;
  emit(StandbyEnded{.pid = event.pid,
                    .status = event.status,
                    .message = event.message,
                    .next_in_s = std::chrono::duration<double>(*pause).count(),
                    .time_ns = event.time_ns});
}

// A standby that had ended before it heard of its rank: it was no worker yet, and another process takes that place.
bool AgentState::was_still_standby(int rank) const {
  const Worker& gone = workers_[static_cast<std::size_t>(rank)];
  return gone.standby && !gone.heard;
}

}  // namespace ddprun
