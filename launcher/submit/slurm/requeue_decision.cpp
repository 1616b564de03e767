#include "launcher/submit/slurm/requeue_decision.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include "common/base/exit_code.hpp"

namespace ddprun {
namespace {

constexpr int kSignalled = 128;  // a process that signal N has ended counts as exit code 128 + N
// If the remaining time is at most this much longer than signal_before_s, the time limit counts as the reason of the stop.
// Slurm may send its signal 60 s early. The other 5 s are a margin.
constexpr double kEarly_s = 65;

constexpr std::array kFinal{ExitCode::kUsage,         ExitCode::kBudgetSpent, ExitCode::kNoProgress, ExitCode::kOutOfMemory,
                            ExitCode::kBadCheckpoint, ExitCode::kDiverged,    ExitCode::kSuperseded};

bool is_final(int code) {
  return std::ranges::any_of(kFinal, [&](ExitCode each) { return static_cast<int>(each) == code; });
}

// Returns true if a signal or the loss of other nodes has stopped the job, and false after a failure.
bool is_stop(const StartEnd& end) {
  if (end.is_workers_code) return false;
  return end.code == static_cast<int>(ExitCode::kPreempted) || end.code == static_cast<int>(ExitCode::kMinority) ||
         end.code == kSignalled + SIGHUP || end.code == kSignalled + SIGINT || end.code == kSignalled + SIGTERM;
}

std::string count_of(int used, int limit) {
  return std::to_string(used) + " of " + std::to_string(limit);
}

}  // namespace

int final_code(int code, ExitCode otherwise) {
  return code == kRequeueExitCode ? static_cast<int>(otherwise) : code;
}

RequeueDecision decide_requeue(const RequeueRecord& before, const StartEnd& end, const RequeueLimits& limits) {
  RequeueDecision decision;
  RequeueRecord& record = decision.record;
  if (before.job == end.job) {
    record = before;
  } else {
    record.job = end.job;
  }
  const bool script_saved = end.of_script && end.code == static_cast<int>(ExitCode::kPreempted) && !end.is_workers_code;
  const bool newer = end.published > before.published || end.newest_step > before.newest_step || script_saved;
  record.published = std::max(end.published, before.published);
  record.newest_step = std::max(end.newest_step, before.newest_step);
  const auto finish = [&](int code, std::string why) {
    decision.exit_code = code;
    decision.why = std::move(why);
    return decision;
  };
  const auto requeue = [&](std::string why) {
    ++record.requeues;
    decision.requeue = true;
    decision.why = std::move(why);
    return decision;
  };
  const std::string code = "exit code " + std::to_string(end.code);

  if (newer) record.timeouts = 0;
  if (end.code == 0) return finish(0, "the job is complete");
  if (is_final(end.code)) return finish(end.code, code + ": another start would not help, so the job ends");
  if (!end.requeue_allowed)
    return finish(final_code(end.code, static_cast<ExitCode>(kSignalled + SIGTERM)),
                  code + ": the job may not be requeued (a user has stopped it, or has set Requeue=0), so it ends");
  if (is_stop(end)) {
    const bool at_limit = !end.seconds_left || *end.seconds_left <= end.signal_before_s + kEarly_s;
    if (!at_limit) return requeue("preempted (" + code + ")");
    if (newer) return requeue("stopped at the time limit, with a newer checkpoint (" + code + ")");
    if (record.timeouts >= limits.timeouts)
      return finish(final_code(end.code, ExitCode::kBudgetSpent),
                    "stopped at the time limit without a newer checkpoint, and all " + std::to_string(limits.timeouts) +
                        " requeues for this are used: the job ends. Use a longer --time, or save more often");
    ++record.timeouts;
    decision.uses_budget = true;
    return requeue("stopped at the time limit without a newer checkpoint (" + count_of(record.timeouts, limits.timeouts) +
                   ", " + code + ")");
  }
  if (record.failures >= limits.failures)
    return finish(final_code(end.code, ExitCode::kBudgetSpent), "failed with " + code + ", and all " +
                                                                    std::to_string(limits.failures) +
                                                                    " requeues after failures are used: the job ends");
  ++record.failures;
  decision.uses_budget = true;
  return requeue("failure " + count_of(record.failures, limits.failures) + " (" + code + ")");
}

}  // namespace ddprun
