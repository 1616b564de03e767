#include "launcher/agent_state/round_judgement.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/diagnosis/device_failure.hpp"
#include "launcher/diagnosis/signal_reason.hpp"
#include "launcher/restart_policy/job_judge.hpp"

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
  check_failed("unknown kind of worker error");
}

// Returns the exit code of the job if a program could not be started. A missing or non-executable program is a usage error. Any
// other error of fork or exec is a fault of the machine.
int exit_code_for_spawn_error(int error) {
  const bool usage = error == ENOENT || error == EACCES || error == ENOEXEC || error == ENOTDIR || error == EPERM ||
                     error == EISDIR || error == ELOOP || error == ENAMETOOLONG || error == ELIBBAD;
  return static_cast<int>(usage ? ExitCode::kUsage : ExitCode::kInternal);
}

// Returns true if the worker wrote its error file before the agent ordered it to stop, although it exited later.
bool reported_before_stop(const WorkerRecord& worker) {
  const auto& file = worker.end.error_file;
  return file && file->timestamp_ns && time_of_failure(*file, worker.ended_ns) < worker.stop_requested_ns;
}

// Returns the newest step that this rank has certainly finished, or -1. In synchronous training, a rank can finish step n only
// after all ranks have finished step n - 1.
std::int64_t known_step(const RoundWorkers& workers, const WorkerRecord& worker) {
  if (worker.step < 0) return worker.step;  // this rank does not report steps
  return std::max(worker.step, std::ranges::max_element(workers.all(), {}, &WorkerRecord::step)->step - 1);
}

}  // namespace

Blame blame_of(const WorkerRecord& worker, bool has_channel) {
  if (worker.hangs || worker.refused) return Blame::kFailed;
  const bool lost_peer = worker.error && worker.error->kind == ErrorKind::kLostPeer;
  if (!worker.stop_requested && !lost_peer) return Blame::kFailed;
  if (worker.stop_requested && !worker.error && reported_before_stop(worker)) return Blame::kFailed;
  // True if the worker failed independently of the order to stop, and its exit was only reported later. Either a signal that
  // the agent had not sent killed the worker, or its exit code shows a failure. For ddptrain the exit codes after a stop are
  // known, so any other code shows a failure. A script may exit with any code after a stop.
  const bool by_itself = worker.status && !worker.killed &&
                         (worker.status->signal != 0 ? worker.status->signal != SIGTERM
                                                     : has_channel && worker.status->code > 1 && worker.status->code < 128 &&
                                                           worker.status->code != static_cast<int>(ExitCode::kPreempted));
  if (worker.stop_requested && !lost_peer && (by_itself || worker.error || worker.stuck)) return Blame::kFailedWhileStopped;
  if (!worker.stop_requested) return Blame::kLostPeer;
  return Blame::kStopped;
}

Failure worker_failure(const RoundWorkers& workers, int rank) {
  const WorkerRecord& worker = workers.at(rank);
  check(worker.has_failed(), "expected a worker that has failed, found a worker without a failure");
  Failure failure;
  failure.rank = workers.global(rank);
  failure.local_rank = rank;
  failure.pid = worker.pid;
  failure.status = worker.status;
  failure.step = known_step(workers, worker);
  failure.time_ns = worker.ended_ns;
  const auto because = [&failure](Cause cause, const std::string& message) {
    failure.cause = cause;
    failure.message = message;
    return failure;
  };
  if (worker.spawn_error) return because(Cause::kSpawn, *worker.spawn_error);
  if (worker.stuck) return because(Cause::kStuck, *worker.stuck);
  failure.evidence = worker.hang_evidence;
  if (worker.refused && worker.error) {
    failure.status.reset();
    return because(Cause::kUsage, worker.error->message);
  }
  if (worker.hangs) return because(Cause::kHang, *worker.hangs);
  if (worker.timer_expired) return because(Cause::kTimerExpired, *worker.timer_expired);

  const bool has_channel = workers.settings().workers_have_channel;
  const agent_event::WorkerExited& end = worker.end;
  failure.cause = worker.status && worker.status->signal != 0 ? Cause::kSignal : Cause::kExitCode;
  if (worker.error) {
    failure.message = worker.error->message;
    // The error that the worker has reported is the cause, even if a signal killed the worker afterwards.
    failure.cause = cause_of(worker.error->kind);
    // If workers have trained, the config was valid earlier in this job. A usage error then means, for example, that a data
    // folder or a mount has disappeared.
    if (failure.cause == Cause::kUsage && workers.have_trained() && !worker.has_trained) failure.cause = Cause::kLateUsage;
    if (worker.error->time_ns > 0) failure.time_ns = std::min(failure.time_ns, worker.error->time_ns);
  } else if (end.error_file) {
    failure.message = end.error_file->message;
    failure.call_stack = end.error_file->call_stack;
    failure.error_file = end.error_file->path.string();
    failure.time_ns = time_of_failure(*end.error_file, worker.ended_ns);
    if (failure.cause == Cause::kExitCode || reported_before_stop(worker)) failure.cause = Cause::kException;
  } else if (has_channel && failure.cause == Cause::kExitCode && worker.status) {
    if (worker.status->code == static_cast<int>(ExitCode::kBadCheckpoint)) failure.cause = Cause::kCheckpoint;
    if (worker.status->code == static_cast<int>(ExitCode::kDiverged)) failure.cause = Cause::kDiverged;
    if (worker.status->code == static_cast<int>(ExitCode::kSuperseded)) failure.cause = Cause::kSuperseded;
  }
  const bool error_file_reports_oom = end.error_file && reports_out_of_memory(end.error_file->message);
  const bool by_itself =
      failure.cause == Cause::kExitCode || failure.cause == Cause::kException || failure.cause == Cause::kSignal;
  if (!worker.error && !worker.killed && by_itself && (error_file_reports_oom || !end.out_of_memory.empty())) {
    failure.cause = Cause::kOutOfMemory;
    if (failure.message.empty()) failure.message = end.out_of_memory;
  }
  if (!end.memory.evidence.empty()) failure.evidence.push_back("memory: " + end.memory.evidence);
  if (!worker.killed && end.memory.proof != OomVerdict::Proof::kNone) {
    const bool proven = end.memory.proof == OomVerdict::Proof::kProven;
    failure.cause = proven ? Cause::kHostOutOfMemory : Cause::kSuspectedOutOfMemory;
    failure.message = end.memory.message;
  }
  // The exception from stderr is used only if there is no better message: evidence about memory is better, and so is the error
  // file. If the agent stopped the worker, the reason for the stop is already known.
  const bool may_have_thrown = failure.cause == Cause::kExitCode || failure.cause == Cause::kOutOfMemory;
  if (may_have_thrown && !worker.stop_requested && !end.error_file && !end.exception.empty()) {
    failure.message = end.exception;
  }
  const bool has_reason_text = failure.cause == Cause::kException || failure.cause == Cause::kLostPeer;
  if (has_reason_text && device_failure_in(failure.message)) {
    const std::string device = worker.error ? worker.error->device : "of local rank " + std::to_string(rank);
    failure.cause = Cause::kDevice;
    failure.message = "device " + device + " has failed: " + failure.message;
  }
  if (failure.cause == Cause::kSignal && failure.message.empty())
    failure.message = reason_of_signal(
        existing(worker.status, "expected an exit status for a worker that was ended by a signal, found none").signal);
  if (blame_of(worker, has_channel) == Blame::kStopped) failure.cause = Cause::kStopped;
  return failure;
}

JudgedRound::JudgedRound(const RoundWorkers& workers, AgentTurn& turn)
    : workers_(workers), turn_(turn), number_(workers.settings().first_round - 1) {
  release_.world_size = workers.settings().world_size;
}

void JudgedRound::set_release(const agent_event::RoundReleased& release) {
  release_ = release;
  number_ = release.first_number + release.round - 1;  // begin() is called next and adds 1
  budget_.restart_count = release.restart_count;
}

void JudgedRound::begin() {
  ++number_;
  started_ = turn_.now;
  first_step_.reset();
  first_failed_at_.reset();
  resumed_from_ = workers_.newest_checkpoint();
}

void JudgedRound::begin_regroup() {
  const std::int64_t resumed_from = resumed_from_;
  begin();
  resumed_from_ = std::max(resumed_from, resumed_from_);
}

void JudgedRound::announce(bool regroup) {
  turn_.emit(RoundStarted{.round = number_,
                          .restart_count = restart_count(),
                          .world_size = release_.world_size,
                          .time_ns = turn_.now.realtime_ns,
                          .workers_here = workers_.settings().world_size,
                          .group_rank = release_.group_rank,
                          .nodes = release_.nodes,
                          .regroup = regroup});
}

void JudgedRound::note_end(const WorkerRecord& ended) {
  // Workers compare their states before they save. So a worker that was ordered to stop may then report a corrupt state, which
  // still counts as a failure.
  const bool by_itself = !ended.stop_requested || (ended.error && ended.error->kind == ErrorKind::kCorruptState);
  if (ended.has_failed() && by_itself && !first_failed_at_) first_failed_at_ = turn_.now.steady;
}

void JudgedRound::note_first_step(std::int64_t step) {
  first_step_ = step;
  resumed_from_ = std::max(workers_.newest_checkpoint(), step);
}

std::optional<Failure> JudgedRound::first_failure() const {
  if (std::ranges::none_of(workers_.all(), &WorkerRecord::has_failed)) return std::nullopt;
  return judged().first;
}

bool JudgedRound::any_by_itself() const {
  return std::ranges::any_of(workers_.all(), [this](const WorkerRecord& worker) {
    return worker.has_failed() && blame_of(worker, workers_.settings().workers_have_channel) != Blame::kStopped;
  });
}

RoundFailed JudgedRound::judged() const {
  std::vector<std::pair<Blame, Failure>> failures;
  for (int rank = 0; rank < workers_.count(); ++rank) {
    const WorkerRecord& ended = workers_.at(rank);
    if (!ended.has_failed()) continue;
    failures.emplace_back(blame_of(ended, workers_.settings().workers_have_channel), worker_failure(workers_, rank));
  }
  std::ranges::stable_sort(failures, {}, [](const auto& failure) { return std::pair(failure.first, failure.second.time_ns); });
  RoundFailed event{};
  event.round = number_;
  event.first = std::move(first_of(failures, "expected at least one failed worker in a failed round, found none").second);
  for (std::size_t i = 1; i < failures.size(); ++i) event.consequences.push_back(std::move(failures[i].second));
  event.decision = RoundFailed::Decision::kGiveUp;
  event.time_ns = turn_.now.realtime_ns;
  return event;
}

FailedRound JudgedRound::record_of(const Failure& first) const {
  const WorkerRecord& culprit = workers_.at(first.local_rank);
  FailedRound record;
  record.cause = first.cause;
  record.rank = first.rank;
  record.status = culprit.status.value_or(ExitStatus{.code = exit_code_for_spawn_error(culprit.spawn_errno)});
  record.step = first.step;
  if (is_out_of_memory(first.cause)) record.memory_requested = memory_requested_in(first.message);
  // If the agent has refused the worker, the exit status shows the agent's SIGKILL, but the cause is a usage error.
  if (culprit.refused) record.status = {.code = static_cast<int>(ExitCode::kUsage)};
  if (culprit.error) record.shrink = culprit.error->shrink;
  record.resumed_from = resumed_from_;
  record.newest_checkpoint = workers_.newest_checkpoint();
  record.lasted = first_failed_at_.value_or(turn_.now.steady) - started_.steady;
  return record;
}

rendezvous::Verdict JudgedRound::verdict_on(const Failure& first) const {
  check(!workers_.settings().is_member(),
        "expected a job on a single machine: in a job on several machines only the coordinator decides whether to restart");
  return judge(first, record_of(first), budget_, workers_.settings().restarts);
}

void JudgedRound::restart(RoundFailed event, RoundFailed::Decision how, const rendezvous::Verdict& verdict) {
  budget_ = verdict.after;
  event.decision = how;
  event.why = verdict.why;
  // At this time the agent does not know which other ranks still have the state. The later event Regrouped lists them.
  if (how == RoundFailed::Decision::kRegroup) event.why += ": rank " + std::to_string(event.first.rank) + " is replaced";
  if (verdict.delay.count() > 0) event.why += " in " + std::to_string(verdict.delay.count()) + " ms";
  turn_.emit(std::move(event));
}

}  // namespace ddprun
