#include "launcher/agent_state/stop_in_progress.hpp"

#include <iterator>
#include <utility>

namespace ddprun {

using std::chrono::milliseconds;

void StopInProgress::order_save(const std::vector<int>& ranks) {
  workers_.request_stop(ranks);
  std::set<int> awaited;
  for (const int rank : ranks) {
    if (!workers_.at(rank).reported_done) awaited.insert(rank);
  }
  if (settings_.is_member() && awaited.empty()) turn_.act(agent_action::ReportSteps{-1});
  round.agreement.emplace(std::move(awaited));
  const auto since = round.deferred_since.value_or(turn_.now.steady);
  const milliseconds most = settings_.shutdown_timeout - reserve();
  const milliseconds left = most - std::chrono::duration_cast<milliseconds>(turn_.now.steady - since);
  const milliseconds time = std::max(left, std::min(reserve(), most));
  round.deadline = turn_.now.steady + time + reserve();
  send_stop(ranks, channel::Stop::Mode::kSave, time);
  turn_.act(agent_action::SetTimer{AgentTimer::kSave, time});
}

void StopInProgress::on_ready(int rank, std::int64_t started) {
  // If the agreed step is already known, the rank repeats its reply because it has not received the step.
  if (round.agreed_step) return send_agreed_step({rank});
  existing(round.agreement, "a worker is ready to save, but no save is in progress").ready(rank, started);
  announce_step();
}

void StopInProgress::leave(int rank) {
  if (!round.agreement) return;
  round.agreement->left(rank);
  announce_step();
}

void StopInProgress::announce_step() {
  const std::optional<std::int64_t> step = round.agreement->step();
  if (!step || round.agreed_step) return;
  if (settings_.is_member()) {
    // The coordinator picks the largest step, since workers of other nodes may have started more steps.
    turn_.act(agent_action::ReportSteps{*step});
  } else if (!round.ordered) {  // it is too late to save once the workers were ordered to stop
    agree_on(*step);
  }
}

void StopInProgress::agree_on(std::int64_t step) {
  check(!round.agreed_step, "the workers agreed on a second step for the same save");
  round.agreed_step = step;
  send_agreed_step(workers_.live());
}

void StopInProgress::send_agreed_step(std::vector<int> ranks) {
  turn_.act(agent_action::SendMessage{std::move(ranks), channel::StopAt{*round.agreed_step}});
}

void StopInProgress::send_stop(std::vector<int> ranks, channel::Stop::Mode mode, milliseconds deadline) {
  turn_.act(agent_action::SendMessage{std::move(ranks),
                                      channel::Stop{.mode = mode, .deadline_ms = deadline.count(), .reason = reason}});
}

void StopInProgress::repeat_order(int rank, channel::Stop::Mode mode) {
  const bool saves = mode == channel::Stop::Mode::kSave;
  send_stop({rank}, mode, saves ? settings_.shutdown_timeout : milliseconds{0});
  if (saves && round.agreed_step) send_agreed_step({rank});
}

void StopInProgress::order_stop(int signal_to_send, milliseconds grace) {
  if (grace.count() == 0) return kill_all();
  const std::vector<int> ranks = workers_.live();
  workers_.request_stop(ranks);
  round.ordered = true;
  round.deadline = turn_.now.steady + grace;
  std::vector<int> receivers;  // ddptrain's workers, and scripts that may be waiting for the agreed step
  std::ranges::copy_if(ranks, std::back_inserter(receivers),
                       [this](int rank) { return settings_.workers_have_channel || workers_.at(rank).saves_on_stop; });
  if (!receivers.empty()) send_stop(std::move(receivers), channel::Stop::Mode::kNow, grace);
  turn_.act(agent_action::SendSignal{ranks, signal_to_send});
  turn_.act(agent_action::SetTimer{AgentTimer::kKill, grace});
}

void StopInProgress::kill_all() {
  round.ordered = true;
  workers_.kill(workers_.live());
}

agent_action::Sweep StopInProgress::sweep_order() {
  using How = agent_action::Sweep::How;
  const bool any_killed = std::ranges::any_of(workers_.all(), &WorkerRecord::killed);
  if (any_killed || round.kills_leftovers || settings_.shutdown_timeout.count() == 0) return {.how = How::kKill};
  if (signal == 0 && !agent_failure) {
    return {.how = workers_.all_ok() && !round.ordered ? How::kDone : How::kEnd, .timeout = settings_.shutdown_timeout};
  }
  if (!round.deadline) round.deadline = turn_.now.steady + settings_.shutdown_timeout;
  const auto left = std::chrono::ceil<milliseconds>(*round.deadline - turn_.now.steady);
  return {.how = How::kStop, .timeout = std::max(milliseconds{0}, left)};
}

}  // namespace ddprun
