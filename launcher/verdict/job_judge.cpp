// Implementation of job_judge.hpp.
#include "launcher/verdict/job_judge.hpp"

#include "common/base/check.hpp"
#include "common/base/exit_code.hpp"

namespace ddprun {

rendezvous::FailureReport report_of(const Failure& failure, const FailedRound& record) {
  rendezvous::FailureReport report;
  report.failed = record;
  report.time_ns = failure.time_ns;
  report.message = failure.message;
  return report;
}

Failure failure_of(const rendezvous::FailureReport& report) {
  Failure failure;
  failure.cause = report.failed.cause;
  failure.rank = report.failed.rank;
  if (failure.cause != Cause::kSpawn) failure.status = report.failed.status;
  failure.host = report.hostname;
  failure.message = report.message;
  failure.step = report.failed.step;
  failure.time_ns = report.time_ns;
  return failure;
}

rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits) {
  rendezvous::Verdict verdict{.after = before};
  const FailedRound& last = first.failed;
  RestartDecision decision = decide_restart(verdict.after.history, last, limits);
  // The worker got a signal that was not ours, and has saved. That is no failure, and a restarted worker would be stopped
  // again.
  if (last.status.signal == 0 && last.status.code == static_cast<int>(ExitCode::kPreempted)) {
    decision = GiveUp{static_cast<int>(ExitCode::kPreempted), "stopped by its workers after saving: run it again to go on"};
  }
  if (const auto* give_up = std::get_if<GiveUp>(&decision)) {
    const bool has_status = last.cause != Cause::kSpawn && last.cause != Cause::kStuck && last.cause != Cause::kHang;
    verdict.exit_code = give_up->exit_code;
    verdict.why = "worker " + std::to_string(last.rank) + (first.hostname.empty() ? "" : " on " + first.hostname) + ": " +
                  (has_status ? describe(last.status) : first.message) + "; " + give_up->why;
    return verdict;
  }
  const Restart& restart = existing(std::get_if<Restart>(&decision), "a decision is neither to give up nor to restart");
  verdict.restart = true;
  verdict.why = restart.why;
  verdict.delay = restart.delay;
  return verdict;
}

}  // namespace ddprun
