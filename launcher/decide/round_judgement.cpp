// Implementation of round_judgement.hpp.
#include "launcher/decide/round_judgement.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/exit_code.hpp"
#include "launcher/verdict/device_failure.hpp"
#include "launcher/verdict/signal_reason.hpp"

namespace ddprun {
namespace {

using channel::ErrorKind;

Cause cause_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kException:
      return Cause::kException;
    case ErrorKind::kUsage:
      return Cause::kUsage;
    case ErrorKind::kOutOfMemory:
      return Cause::kOutOfMemory;
    case ErrorKind::kLostPeer:
      return Cause::kLostPeer;
    case ErrorKind::kDiverged:
      return Cause::kDiverged;
    case ErrorKind::kCheckpoint:
      return Cause::kCheckpoint;
    case ErrorKind::kCorruptState:
      return Cause::kCorruptState;
    case ErrorKind::kSuperseded:
      return Cause::kSuperseded;
  }
  check_failed("a worker's error is of no kind that there is");
}

// The user can fix a program that is missing or not executable. Any other error is a fault of the machine.
int exit_code_for_spawn_error(int error) {
  const bool usage = error == ENOENT || error == EACCES || error == ENOEXEC || error == ENOTDIR || error == EPERM ||
                     error == EISDIR || error == ELOOP || error == ENAMETOOLONG || error == ELIBBAD;
  return static_cast<int>(usage ? ExitCode::kUsage : ExitCode::kInternal);
}

// The worker reported a failure before it was asked to stop; only its end came later.
bool had_failed_before(const WorkerRecord& worker) {
  return worker.error_file && worker.error_file->timestamp_ns &&
         time_of_failure(*worker.error_file, worker.ended_ns) < worker.asked_ns;
}

// Ranks step together: when one rank has finished a step, every other rank has finished the step before it.
std::int64_t known_step(const JudgedRound& round, const WorkerRecord& worker) {
  std::int64_t newest = worker.step;
  if (newest < 0) return newest;  // the rank reports no steps
  for (const WorkerRecord& other : round.workers) newest = std::max(newest, other.step - 1);
  return newest;
}

}  // namespace

bool has_failed(const WorkerRecord& worker) {
  return worker.spawn_error || worker.stuck || (worker.status && !worker.status->ok());
}

Blame blame_of(const WorkerRecord& worker, bool has_channel) {
  if (worker.hangs || worker.refused) return Blame::kFailed;
  const bool lost_peer = worker.error && worker.error->kind == ErrorKind::kLostPeer;
  if (!worker.asked_to_stop && !lost_peer) return Blame::kFailed;
  if (worker.asked_to_stop && !worker.error && had_failed_before(worker)) return Blame::kFailed;
  // The worker failed by itself, and only the report of its end came late. Either it died of a signal that was not ours, or its
  // exit code shows a failure. ddptrain's exit codes after a stop are known, so another code is its own failure. A script may
  // exit with any code.
  const bool by_itself = worker.status && !worker.killed &&
                         (worker.status->signal != 0 ? worker.status->signal != SIGTERM
                                                     : has_channel && worker.status->code > 1 && worker.status->code < 128 &&
                                                           worker.status->code != static_cast<int>(ExitCode::kPreempted));
  if (worker.asked_to_stop && !lost_peer && (by_itself || worker.error || worker.stuck)) return Blame::kFailedWhileStopped;
  if (!worker.asked_to_stop) return Blame::kLostPeer;
  return Blame::kStopped;
}

Failure failure_of(const JudgedRound& round, int rank) {
  const WorkerRecord& worker = of_rank(round.workers, rank);
  check(has_failed(worker), "a worker is judged that has not failed");
  Failure failure;
  failure.rank = round.rank_offset + rank;
  failure.local_rank = rank;
  failure.pid = worker.pid;
  failure.status = worker.status;
  failure.step = known_step(round, worker);
  failure.time_ns = worker.ended_ns;
  if (worker.spawn_error) {
    failure.cause = Cause::kSpawn;
    failure.message = *worker.spawn_error;
    return failure;
  }
  if (worker.stuck) {
    failure.cause = Cause::kStuck;
    failure.message = *worker.stuck;
    return failure;
  }
  failure.evidence = worker.hang_evidence;
  if (worker.refused && worker.error) {
    failure.cause = Cause::kUsage;
    failure.message = worker.error->message;
    failure.status.reset();
    return failure;
  }
  if (worker.hangs) {
    failure.cause = Cause::kHang;
    failure.message = *worker.hangs;
    return failure;
  }
  if (worker.timer_expired) {
    failure.cause = Cause::kTimerExpired;
    failure.message = *worker.timer_expired;
    return failure;
  }
  failure.cause = worker.status && worker.status->signal != 0 ? Cause::kSignal : Cause::kExitCode;
  if (worker.error) {
    failure.message = worker.error->message;
    // A fatal report is the cause, even if a signal killed the worker after it.
    failure.cause = cause_of(worker.error->kind);
    // The config was valid when the job began, so something has disappeared: the data folder, a mount.
    if (failure.cause == Cause::kUsage && round.job_has_trained && !worker.has_trained) failure.cause = Cause::kLateUsage;
    if (worker.error->time_ns > 0) failure.time_ns = std::min(failure.time_ns, worker.error->time_ns);
  } else if (worker.error_file) {
    failure.message = worker.error_file->message;
    failure.call_stack = worker.error_file->call_stack;
    failure.error_file = worker.error_file->path.string();
    failure.time_ns = time_of_failure(*worker.error_file, worker.ended_ns);
    if (failure.cause == Cause::kExitCode || had_failed_before(worker)) failure.cause = Cause::kException;
  } else if (round.workers_have_channel && failure.cause == Cause::kExitCode && worker.status) {
    if (worker.status->code == static_cast<int>(ExitCode::kBadCheckpoint)) failure.cause = Cause::kCheckpoint;
    if (worker.status->code == static_cast<int>(ExitCode::kDiverged)) failure.cause = Cause::kDiverged;
    if (worker.status->code == static_cast<int>(ExitCode::kSuperseded)) failure.cause = Cause::kSuperseded;
  }
  const bool error_file_says = worker.error_file && says_out_of_memory(worker.error_file->message);
  const bool by_itself =
      failure.cause == Cause::kExitCode || failure.cause == Cause::kException || failure.cause == Cause::kSignal;
  if (!worker.error && !worker.killed && by_itself && (error_file_says || !worker.out_of_memory.empty())) {
    failure.cause = Cause::kOutOfMemory;
    if (failure.message.empty()) failure.message = worker.out_of_memory;
  }
  if (!worker.memory.evidence.empty()) failure.evidence.push_back("memory: " + worker.memory.evidence);
  if (!worker.killed && worker.memory.proof != OomVerdict::Proof::kNone) {
    const bool proven = worker.memory.proof == OomVerdict::Proof::kProven;
    failure.cause = proven ? Cause::kHostOutOfMemory : Cause::kSuspectedOutOfMemory;
    failure.message = worker.memory.message;
  }
  // The last exception is the message only where no better one exists. Evidence about memory is better than the worker's own
  // report. For a worker that we stopped, the reason for the stop is known.
  const bool may_have_thrown = failure.cause == Cause::kExitCode || failure.cause == Cause::kOutOfMemory;
  if (may_have_thrown && !worker.asked_to_stop && !worker.error_file && !worker.exception.empty()) {
    failure.message = worker.exception;
  }
  const bool said_why = failure.cause == Cause::kException || failure.cause == Cause::kLostPeer;
  if (said_why && device_failure_in(failure.message)) {
    const std::string device = worker.error ? worker.error->device : "of local rank " + std::to_string(rank);
    failure.cause = Cause::kDevice;
    failure.message = "device " + device + " has failed: " + failure.message;
  }
  if (failure.cause == Cause::kSignal && failure.message.empty())
    failure.message = reason_of_signal(existing(worker.status, "a signal is the cause of an end that is not known").signal);
  if (blame_of(worker, round.workers_have_channel) == Blame::kStopped) failure.cause = Cause::kStopped;
  return failure;
}

RoundFailed judge_round(const JudgedRound& round, std::int64_t now_ns) {
  std::vector<std::pair<Blame, Failure>> failures;
  for (int rank = 0; rank < static_cast<int>(round.workers.size()); ++rank) {
    const WorkerRecord& ended = of_rank(round.workers, rank);
    if (has_failed(ended)) failures.emplace_back(blame_of(ended, round.workers_have_channel), failure_of(round, rank));
  }
  std::stable_sort(failures.begin(), failures.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.time_ns) < std::pair(b.first, b.second.time_ns);
  });
  RoundFailed event{};
  event.round = round.number;
  event.first = std::move(first_of(failures, "a round is judged in which no worker has failed").second);
  for (std::size_t i = 1; i < failures.size(); ++i) event.consequences.push_back(std::move(failures[i].second));
  event.decision = RoundFailed::Decision::kGiveUp;
  event.time_ns = now_ns;
  return event;
}

FailedRound record_of(const JudgedRound& round, const Failure& first) {
  const WorkerRecord& culprit = of_rank(round.workers, first.local_rank);
  FailedRound record;
  record.cause = first.cause;
  record.rank = first.rank;
  record.status = culprit.status.value_or(ExitStatus{.code = exit_code_for_spawn_error(culprit.spawn_errno)});
  record.step = first.step;
  if (is_out_of_memory(first.cause)) record.memory_asked = memory_asked_in(first.message);
  // Our SIGKILL ended the worker, but the usage error is the cause.
  if (culprit.refused) record.status = {.code = static_cast<int>(ExitCode::kUsage)};
  if (culprit.error) record.shrink = culprit.error->shrink;
  return record;
}

}  // namespace ddprun
