#include "launcher/restart_policy/job_judge.hpp"

#include <string>

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
  const bool has_ended = failure.cause != Cause::kSpawn && failure.cause != Cause::kStuck;
  if (has_ended) failure.status = report.failed.status;
  failure.host = report.hostname;
  failure.message = report.message;
  failure.step = report.failed.step;
  failure.time_ns = report.time_ns;
  return failure;
}

rendezvous::Verdict judge(const Failure& first, const FailedRound& record, const rendezvous::Budget& before,
                          const RestartLimits& limits) {
  rendezvous::Verdict verdict = decide_restart(record, before, limits);
  verdict.failure =
      "worker " + std::to_string(first.rank) + (first.host.empty() ? "" : " on " + first.host) + ": " + describe_failure(first);
  return verdict;
}

rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits) {
  return judge(failure_of(first), first.failed, before, limits);
}

}  // namespace ddprun
