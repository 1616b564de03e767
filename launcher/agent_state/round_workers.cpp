#include "launcher/agent_state/round_workers.hpp"

#include <csignal>
#include <utility>

#include "common/base/overloaded.hpp"
#include "common/channel/version.hpp"

namespace ddprun {

// ---- processes ----

void RoundWorkers::start(int rank) {
  at(rank) = WorkerRecord{};
  at(rank).live = true;
}

void RoundWorkers::start_all() {
  records_.resize(static_cast<std::size_t>(settings_.world_size));
  for (int rank = 0; rank < settings_.world_size; ++rank) start(rank);
}

bool RoundWorkers::end(int rank, std::int64_t time_ns) {
  if (!std::exchange(at(rank).live, false)) return false;
  at(rank).ended_ns = time_ns;
  return true;
}

bool RoundWorkers::end(const agent_event::WorkerExited& event) {
  if (!end(event.rank, event.time_ns)) return false;
  WorkerRecord& ended = at(event.rank);
  ended.pid = event.pid;
  ended.status = event.status;
  // ddptrain reaches its store only over the worker channel. So a worker that never used the channel cannot have trained.
  if (settings_.workers_have_channel && event.status.ok() && !ended.got_hello && !ended.stop_requested && !ended.refused) {
    refuse(ended,
           "it exited with code 0 without sending a message to ddprun, so it did not train. A train.json needs ddptrain or a "
           "program that is built with ddprun's library; start any other program without a train.json");
  }
  if (ended.refused && event.status.ok())
    // A refused worker with status 0 exited before the agent's SIGKILL, or never sent a message. The usage error replaces this
    // status.
    ended.status->code = static_cast<int>(ExitCode::kUsage);
  ended.end = event;
  return true;
}

bool RoundWorkers::end(const agent_event::SpawnFailed& event) {
  if (!end(event.rank, event.time_ns)) return false;
  at(event.rank).spawn_error = event.message;
  at(event.rank).spawn_errno = event.error;
  return true;
}

void RoundWorkers::end_all_except(const std::vector<int>& running) {
  for (int rank = 0; rank < count(); ++rank) {
    if (std::ranges::find(running, rank) == running.end()) at(rank).live = false;
  }
}

// ---- reports ----

void RoundWorkers::note(int rank, const channel::FromWorker& message) {
  WorkerRecord& sender = at(rank);
  const auto reached = [&sender](std::int64_t step) { sender.step = std::max(sender.step, step); };
  // a standby's Hello may arrive after the standby became a worker, so a Hello proves nothing
  if (!std::holds_alternative<channel::Hello>(message)) sender.has_sent_message = true;
  std::visit(Overloaded{[&](const channel::Hello& hello) { on_hello(rank, hello); },
                        [&](const channel::SavesOnStop&) { sender.saves_on_stop = true; },
                        [&](const channel::Regroupable&) { regroupable_ = true; },
                        [&](const channel::Progress& progress) { reached(progress.step); },
                        [&](const channel::GroupFormed& formed) { reached(formed.step); },
                        [&](const channel::PhaseChange& change) {
                          reached(change.step);
                          sender.reported_done = change.phase == channel::Phase::kDone;
                          if (change.phase == channel::Phase::kRunning) sender.has_trained = has_trained_ = true;
                        },
                        [&](const channel::WorkerError& error) {
                          if (!error.fatal) return;
                          reached(error.step);
                          // Only the first error is kept, because later ones often come from stack unwinding.
                          if (!sender.error) sender.error = error;
                        },
                        [&](const channel::CheckpointPublished& published) {
                          newest_checkpoint_ = std::max(newest_checkpoint_, published.step);
                        },
                        [](const auto&) {}},  // AgentState handles the other messages
             message);
}

// Checks the worker's protocol version. If the version does not match, a script continues without its helper. ddptrain is
// killed, since it cannot reach its store without the channel.
void RoundWorkers::on_hello(int rank, const channel::Hello& message) {
  if (channel::is_compatible(message)) {
    at(rank).got_hello = true;
  } else if (!settings_.workers_have_channel) {
    turn_.emit(HelperIgnored{global(rank), channel::version_mismatch(message), turn_.now.realtime_ns});
  } else if (at(rank).live) {
    refuse(at(rank), channel::version_mismatch(message));
    turn_.act(agent_action::SendSignal{{rank}, SIGKILL});
  }
}

void RoundWorkers::refuse(WorkerRecord& worker, std::string why) {
  worker.refused = true;
  worker.error = channel::WorkerError{
      .kind = channel::ErrorKind::kUsage, .message = std::move(why), .step = -1, .time_ns = turn_.now.realtime_ns};
}

// Records the evidence of the hang. The evidence also names ranks that exited with 0, since the hanging ranks may be waiting
// for them.
std::vector<int> RoundWorkers::note(const agent_event::HangFound& event) {
  std::vector<int> blamed;
  for (const HangFinding& finding : event.findings) {
    WorkerRecord& found = at(finding.rank);
    if (!found.live) continue;
    found.hang_evidence = finding.evidence;
    if (!finding.blame) continue;
    found.hangs = finding.blame;
    blamed.push_back(finding.rank);
    for (int rank = 0; rank < count(); ++rank) {
      if (!at(rank).status) continue;
      found.hang_evidence.push_back("rank " + std::to_string(global(rank)) +
                                    " exited with code 0 before the hang: the other ranks may be waiting for it");
    }
  }
  return blamed;
}

// ---- orders ----

void RoundWorkers::request_stop(const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    if (!std::exchange(at(rank).stop_requested, true)) at(rank).stop_requested_ns = turn_.now.realtime_ns;
  }
}

void RoundWorkers::kill(const std::vector<int>& ranks) {
  request_stop(ranks);
  for (const int rank : ranks) at(rank).killed = true;
  if (!ranks.empty()) turn_.act(agent_action::SendSignal{ranks, SIGKILL});
}

// ---- queries ----

std::vector<int> RoundWorkers::live() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < count(); ++rank) {
    if (at(rank).is_awaited()) ranks.push_back(rank);
  }
  return ranks;
}

std::optional<int> RoundWorkers::stuck() const {
  const auto found = std::ranges::find_if(records_, [](const WorkerRecord& worker) { return worker.stuck.has_value(); });
  return found == records_.end() ? std::nullopt : std::optional(static_cast<int>(found - records_.begin()));
}

bool RoundWorkers::all_can_save() const {
  const auto can_save = [this](const WorkerRecord& worker) {
    return !worker.is_awaited() || (settings_.workers_have_channel ? worker.got_hello : worker.saves_on_stop);
  };
  return (settings_.workers_have_channel || !live().empty()) && std::ranges::all_of(records_, can_save);
}

std::vector<int> RoundWorkers::global(std::vector<int> ranks) const {
  for (int& rank : ranks) rank += first_rank_;
  return ranks;
}

}  // namespace ddprun
