#include "launcher/agent_state/job_ending.hpp"

#include <algorithm>

#include "common/base/signal_name.hpp"

namespace ddprun {
namespace {

constexpr int kPreempted = static_cast<int>(ExitCode::kPreempted);

// Returns true if the worker saved at the agreed step and then exited. ddptrain exits with 85 after a save. A script may also
// exit with 0; then it counts as saved if it had reported that it was saving.
bool has_saved(const WorkerRecord& worker, const RoundStop& stop) {
  return worker.exited_preempted() || (worker.exited_ok() && worker.saves_now && !stop.ordered);
}

// Returns true if at least one worker has saved, and every other worker has saved, has finished the job or was abandoned.
bool all_have_saved(const EndFacts& facts) {
  const RoundStop& stop = facts.stop.round;
  const auto saved = [&stop](const WorkerRecord& worker) { return has_saved(worker, stop); };
  const auto ended_well = [](const WorkerRecord& worker) { return worker.abandoned || worker.ended_well(); };
  return stop.agreement && std::ranges::any_of(facts.workers.all(), saved) &&
         std::ranges::all_of(facts.workers.all(), ended_well);
}

bool others_have_saved(const EndFacts& facts) {
  const int culprit = facts.round.judged().first.local_rank;
  for (int rank = 0; rank < facts.workers.count(); ++rank) {
    if (rank != culprit && !facts.workers.at(rank).exited_preempted()) return false;
  }
  return facts.workers.count() > 1;
}

// Returns the part of the job's last message that describes the saved state. If no worker finished a step since the start,
// there was no new state to save.
std::string saved_state(const EndFacts& facts) {
  if (facts.workers.settings().workers_have_channel) {  // the agent does not receive the step numbers of scripts
    const std::int64_t made = std::ranges::max_element(facts.workers.all(), {}, &WorkerRecord::step)->step;
    if (made <= 0) return " before the first training step, so there was no state to save: run the job again to start";
    if (facts.workers.newest_checkpoint() < made) return "; the newest checkpoint is up to date: run the job again to continue";
  }
  return " after saving: run the job again to continue";
}

// Ends the job because a worker cannot be killed. Such a worker still holds resources (a GPU, a port), so no round can follow.
// The guardian keeps running until the kernel has ended this worker.
JobEnding ending_with_stuck(const EndFacts& facts, int rank) {
  const StopInProgress& stop = facts.stop;
  JobEnding ending{.exit_code = static_cast<int>(ExitCode::kInternal),  // not a usage error: the job may run on another machine
                   .why = "worker " + std::to_string(facts.workers.global(rank)) + ": " + *facts.workers.at(rank).stuck,
                   .round_failed =
                       "no restart, since a worker process cannot be killed and still uses its GPU and port: restart the "
                       "machine if the process does not end",
                   .abandons = true};
  const Failure first = facts.round.judged().first;
  // If another worker failed first, the job's exit code is the exit code of that worker.
  if (first.status) ending.exit_code = first.status->as_exit_code();
  if (stop.signal != 0) ending.exit_code = 128 + stop.signal;
  const auto follow = [&ending](const auto& order) {
    if (!order) return;
    ending.exit_code = order->exit_code;
    ending.why = order->why + "; " + ending.why;
  };
  follow(stop.job_over);  // all nodes exit with the coordinator's exit code
  follow(stop.agent_failure);
  return ending;
}

JobEnding ending_by_stop(const EndFacts& facts) {
  const StopInProgress& stop = facts.stop;
  const std::string by = stop.signal != 0 ? "stopped by " + signal_name(stop.signal) : "stopped by its workers";
  JobEnding ending;
  if (stop.round.self_preempted || all_have_saved(facts)) {
    ending = {kPreempted, by + saved_state(facts)};
  } else {
    const bool could_save = facts.workers.settings().workers_have_channel || stop.round.agreement;
    ending = {128 + stop.signal, by + (could_save ? " before it could save" : "")};
  }
  // If the job was already failing when the signal arrived, the failure is reported too.
  if (facts.round_is_over && facts.round.failed_before_stop() && !stop.round.self_preempted) ending.round_failed = by;
  return ending;
}

JobEnding ending_by_verdict(const EndFacts& facts) {
  const rendezvous::Verdict& verdict = *facts.verdict;
  JobEnding ending{verdict.exit_code, verdict.end(), verdict.why};
  if (!facts.stop.round.without_lost || !others_have_saved(facts)) return ending;
  ending.why += "; the other workers have saved their state";
  if (verdict.preempted_once_saved) {
    ending.exit_code = kPreempted;
    ending.why += ": run the job again to continue";
  }
  return ending;
}

// Returns true if all workers have finished their work. After a signal, scripts that exit with 0 count as finished only in one
// case: they were ordered to save, and none of them started to save.
bool all_have_finished(const EndFacts& facts) {
  const RoundStop& stop = facts.stop.round;
  const bool in_time = stop.agreement && !stop.ordered && std::ranges::none_of(facts.workers.all(), &WorkerRecord::saves_now);
  return facts.round_is_over && facts.workers.all_ok() &&
         (facts.stop.signal == 0 || facts.workers.settings().workers_have_channel || in_time);
}

}  // namespace

std::optional<JobEnding> ending_of(const EndFacts& facts) {
  const StopInProgress& stop = facts.stop;
  if (const auto rank = facts.workers.stuck(); rank && facts.workers.live().empty()) return ending_with_stuck(facts, *rank);
  if (stop.agent_failure) {
    const std::string saved = all_have_saved(facts) ? "; the workers stopped" + saved_state(facts) : "";
    return JobEnding{stop.agent_failure->exit_code, stop.agent_failure->why + saved};
  }
  if (stop.job_over) return JobEnding{stop.job_over->exit_code, stop.job_over->why};
  if (all_have_finished(facts)) return JobEnding{0, "done"};
  const bool is_stopped = stop.signal != 0 || stop.round.self_preempted;
  if (is_stopped && !(facts.round_is_over && stop.round.without_lost)) return ending_by_stop(facts);
  if (facts.verdict && !facts.verdict->restart) return ending_by_verdict(facts);
  return std::nullopt;
}

agent_action::ReportRoundOver::How round_end_of(const EndFacts& facts) {
  using How = agent_action::ReportRoundOver::How;
  const RoundStop& stop = facts.stop.round;
  const auto& workers = facts.workers.all();
  const bool is_script = !facts.workers.settings().workers_have_channel;
  // If a script was ordered to stop and exits with 0, it has not finished its work. It counts as saved only if it has reported
  // that it saves.
  const bool cut_short = is_script && (stop.ordered || !stop.agreement);
  const auto stopped = [&](const WorkerRecord& worker) {
    return is_script && worker.stop_requested && (cut_short || has_saved(worker, stop));
  };
  const auto saved_or_lost = [&](const WorkerRecord& worker) {
    return (!cut_short && worker.ended_well()) || worker.abandoned || (stop.without_lost && !worker.stop_requested);
  };
  if (facts.workers.all_ok() && std::ranges::none_of(workers, stopped)) return How::kDone;
  return stop.agreement && std::ranges::all_of(workers, saved_or_lost) ? How::kSaved : How::kEnded;
}

}  // namespace ddprun
