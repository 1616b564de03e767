#include "launcher/agent_state/regroup.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ddprun {

using std::chrono::milliseconds;

std::set<int> LiveRecovery::others() const {
  std::set<int> ranks;
  for (const int rank : workers_.live()) {
    if (!unstarted_.contains(rank)) ranks.insert(rank);
  }
  const bool all = static_cast<int>(ranks.size() + unstarted_.size()) == workers_.count() - 1;
  return all ? ranks : std::set<int>{};
}

std::set<int> LiveRecovery::survivors() const {
  std::set<int> ranks = pending_ ? pending_->survivors() : std::set<int>{};
  std::erase_if(ranks, [this](int rank) { return !workers_.at(rank).is_awaited(); });
  return ranks;
}

void LiveRecovery::begin(int generation, std::set<int> lost, std::set<int> alive,
                         std::chrono::steady_clock::time_point lost_at) {
  for (const int rank : lost) workers_.start(rank);
  unstarted_.insert(lost.begin(), lost.end());
  pending_.emplace(generation, std::move(lost), std::move(alive), lost_at);
}

void LiveRecovery::replace(int lost, const std::set<int>& alive, int generation) {
  begin(generation, {lost}, alive, turn_.now.steady);
  turn_.act(agent_action::SendMessage{{alive.begin(), alive.end()}, channel::Regroup{.generation = generation}});
}

void LiveRecovery::continue_held(std::chrono::steady_clock::time_point lost_at) {
  const agent_event::RoundReleased& release = round_.release();
  std::set<int> kept;
  std::set<int> missing;
  for (int rank = 0; rank < workers_.count(); ++rank) (workers_.at(rank).live ? kept : missing).insert(rank);
  for (const int rank : kept) {
    workers_.at(rank).reported_done = false;
    turn_.act(agent_action::SendMessage{{rank},
                                        channel::Regroup{.generation = release.round,
                                                         .rank = workers_.global(rank),
                                                         .world_size = release.world_size,
                                                         .group_rank = release.group_rank,
                                                         .group_world_size = release.nodes}});
  }
  begin(release.round, std::move(missing), std::move(kept), lost_at);
}

bool LiveRecovery::absorb(int rank) {
  if (!pending_) return false;
  const WorkerRecord& lost = workers_.at(rank);
  // True if the standby exited before it sent its first message as a worker.
  const bool was_still_standby = lost.standby && !lost.has_sent_message;
  if (!pending_->add_lost(rank) && !was_still_standby) return false;
  workers_.start(rank);
  const bool waits = is_paused();
  unstarted_.insert(rank);
  if (!waits) start_replacements();
  return true;
}

void LiveRecovery::replace_lost(milliseconds pause) {
  // The replacement may take as long to load as the first workers.
  const auto startup_limit = std::chrono::ceil<milliseconds>(2 * startup_time_);
  turn_.act(agent_action::SetTimer{AgentTimer::kRegroup, std::max(workers_.settings().regroup_limit, startup_limit) + pause});
  if (pause.count() > 0) {
    turn_.act(agent_action::SetTimer{AgentTimer::kReplace, pause});
  } else {
    start_replacements();
  }
}

void LiveRecovery::start_replacements() {
  for (const int rank : std::exchange(unstarted_, {})) {
    const std::optional<int> standby = standbys_.take();
    if (standby) {
      workers_.at(rank).standby = standby;
      workers_.at(rank).got_hello = true;
      turn_.act(agent_action::TakeOver{*standby, rank, round_.number(), round_.restart_count()});
    } else {
      turn_.act(round_.new_worker(rank));
    }
  }
}

void LiveRecovery::on_ready(int rank, const channel::RegroupReady& message) {
  if (!pending_) return;
  pending_->ready(rank, message.generation, message.step);
  workers_.at(rank).step = std::max(workers_.at(rank).step, message.step);
}

std::optional<std::int64_t> LiveRecovery::on_formed(int rank, const channel::GroupFormed& message) {
  if (!pending_) {
    startup_time_ = turn_.now.steady - round_.started().steady;
    const bool complete = group_members_.insert(rank).second && static_cast<int>(group_members_.size()) == workers_.count();
    return complete ? std::optional(message.step) : std::nullopt;
  }
  if (!pending_->joined(rank, message.generation, message.step, workers_.count())) return std::nullopt;
  const std::vector<int> replaced(pending_->replaced().begin(), pending_->replaced().end());
  std::vector<int> by_standby;
  std::ranges::copy_if(replaced, std::back_inserter(by_standby),
                       [this](int one) { return workers_.at(one).standby.has_value(); });
  const std::int64_t step = pending_->step();
  turn_.emit(Regrouped{.round = round_.number(),
                       .kept = workers_.global(pending_->keepers()),
                       .replaced = workers_.global(replaced),
                       .by_standby = workers_.global(std::move(by_standby)),
                       .step = step,
                       .seconds = std::chrono::duration<double>(turn_.now.steady - pending_->started_at()).count(),
                       .time_ns = turn_.now.realtime_ns});
  leave();
  return step;
}

void LiveRecovery::leave() {
  if (!pending_) return;
  pending_.reset();
  for (const int rank : std::exchange(unstarted_, {})) workers_.at(rank).live = false;
  turn_.act(agent_action::CancelTimer{AgentTimer::kRegroup});
  turn_.act(agent_action::CancelTimer{AgentTimer::kReplace});
}

void LiveRecovery::abandon_replacements(const std::set<int>& alive) {
  for (const int rank : unstarted_) workers_.at(rank).abandoned = true;
  leave();
  std::vector<int> loading;
  for (const int rank : workers_.live()) {
    if (alive.contains(rank) || workers_.at(rank).abandoned) continue;
    workers_.at(rank).abandoned = true;
    loading.push_back(rank);
  }
  workers_.kill(loading);
}

void LiveRecovery::form_group(const std::set<int>& alive, int generation) {
  int place = 0;
  for (const int rank : alive) {
    turn_.act(agent_action::SendMessage{{rank},
                                        channel::Regroup{.generation = generation,
                                                         .rank = place++,
                                                         .world_size = static_cast<int>(alive.size()),
                                                         .group_rank = 0,
                                                         .group_world_size = 1}});
  }
}

}  // namespace ddprun
