// The part of AgentState (agent_state.hpp) that says what became of each worker of a round: who failed, who only followed, and
// why. Of what is left to do about it the restart policy knows (restart_policy.hpp).
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "common/base/exit_code.hpp"
#include "launcher/decide/agent_state.hpp"
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
  }
  return Cause::kException;
}

// A program that is not there or not executable is the user's to mend; anything else is the machine's.
int exit_code_for_spawn_error(int error) {
  const bool usage = error == ENOENT || error == EACCES || error == ENOEXEC || error == ENOTDIR || error == EPERM ||
                     error == EISDIR || error == ELOOP || error == ENAMETOOLONG || error == ELIBBAD;
  return static_cast<int>(usage ? ExitCode::kUsage : ExitCode::kInternal);
}

}  // namespace

// Who failed, the first cause first; the decision is still to be filled in. At least one worker has failed.
RoundFailed AgentState::judge_round() const {
  std::vector<std::pair<int, Failure>> failures;  // with blame
  for (int rank = 0; rank < settings_.world_size; ++rank) {
    const Worker& ended = workers_[static_cast<std::size_t>(rank)];
    if (failed(ended)) failures.emplace_back(blame(ended), failure_of(rank));
  }
  std::stable_sort(failures.begin(), failures.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.time_ns) < std::pair(b.first, b.second.time_ns);
  });
  RoundFailed event{};
  event.round = round_;
  event.first = std::move(failures.front().second);
  for (std::size_t i = 1; i < failures.size(); ++i) event.consequences.push_back(std::move(failures[i].second));
  event.decision = RoundFailed::Decision::kGiveUp;
  event.time_ns = now_.realtime_ns;
  return event;
}

FailedRound AgentState::record_of(const Failure& first) const {
  FailedRound record;
  record.cause = first.cause;
  record.rank = first.rank;
  const Worker& culprit = workers_[static_cast<std::size_t>(first.local_rank)];
  record.status = culprit.status.value_or(ExitStatus{.code = exit_code_for_spawn_error(culprit.spawn_errno)});
  record.step = first.step;
  if (culprit.error) record.shrink = culprit.error->shrink;
  record.resumed_from = resumed_from_;
  record.newest_checkpoint = newest_checkpoint_;
  record.lasted = first_failure_.value_or(now_.steady) - round_started_.steady;
  return record;
}

bool AgentState::failed(const Worker& worker) const {
  return worker.spawn_error || worker.stuck || (worker.status && !worker.status->ok());
}

// It wrote why it failed before it was asked to stop, and only its end came later.
bool AgentState::had_failed_before(const Worker& worker) const {
  return worker.error_file && worker.error_file->timestamp_ns &&
         time_of_failure(*worker.error_file, worker.ended_ns) < worker.asked_ns;
}

// The smaller, the likelier the cause; within a class the earlier is the cause.
int AgentState::blame(const Worker& worker) const {
  if (worker.hangs) return 0;
  const bool lost_peer = worker.error && worker.error->kind == ErrorKind::kLostPeer;
  if (!worker.asked_to_stop && !lost_peer) return 0;
  if (worker.asked_to_stop && !worker.error && had_failed_before(worker)) return 0;
  // It died of a signal that we did not send, or said why it failed: news of its end came late.
  // ddptrain's answers to being stopped are known, so another code was its own decision; a script may answer with any.
  const bool by_itself =
      worker.status && !worker.killed &&
      (worker.status->signal != 0 ? worker.status->signal != SIGTERM
                                  : settings_.workers_have_channel && worker.status->code > 1 && worker.status->code < 128 &&
                                        worker.status->code != static_cast<int>(ExitCode::kPreempted));
  if (worker.asked_to_stop && !lost_peer && (by_itself || worker.error)) return 1;
  if (!worker.asked_to_stop) return 2;
  return 3;
}

// Ranks go through the steps together: where one has finished a step, every other has finished the one before.
std::int64_t AgentState::known_step(const Worker& worker) const {
  std::int64_t newest = worker.step;
  if (newest < 0) return newest;  // reports none
  for (const Worker& other : workers_) newest = std::max(newest, other.step - 1);
  return newest;
}

Failure AgentState::failure_of(int rank) const {
  const Worker& worker = workers_[static_cast<std::size_t>(rank)];
  Failure failure;
  failure.rank = global(rank);
  failure.local_rank = rank;
  failure.pid = worker.pid;
  failure.status = worker.status;
  failure.step = known_step(worker);
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
    // A worker that was killed after reporting died of the signal only if it had said nothing fatal before.
    failure.cause = cause_of(worker.error->kind);
    if (worker.error->time_ns > 0) failure.time_ns = std::min(failure.time_ns, worker.error->time_ns);
  } else if (worker.error_file) {
    failure.message = worker.error_file->message;
    failure.call_stack = worker.error_file->call_stack;
    failure.error_file = worker.error_file->path.string();
    failure.time_ns = time_of_failure(*worker.error_file, worker.ended_ns);
    if (failure.cause == Cause::kExitCode || had_failed_before(worker)) failure.cause = Cause::kException;
  } else if (settings_.workers_have_channel && failure.cause == Cause::kExitCode && worker.status) {
    if (worker.status->code == static_cast<int>(ExitCode::kBadCheckpoint)) failure.cause = Cause::kCheckpoint;
    if (worker.status->code == static_cast<int>(ExitCode::kDiverged)) failure.cause = Cause::kDiverged;
  }
  if (!worker.memory.evidence.empty()) failure.evidence.push_back("memory: " + worker.memory.evidence);
  if (!worker.killed && worker.memory.proof != OomVerdict::Proof::kNone) {
    const bool proven = worker.memory.proof == OomVerdict::Proof::kProven;
    failure.cause = proven ? Cause::kHostOutOfMemory : Cause::kSuspectedOutOfMemory;
    failure.message = worker.memory.message;
  }
  const bool said_why = failure.cause == Cause::kException || failure.cause == Cause::kLostPeer;
  if (said_why && device_failure_in(failure.message)) {
    const std::string device = worker.error ? worker.error->device : "of local rank " + std::to_string(rank);
    failure.cause = Cause::kDevice;
    failure.message = "device " + device + " has failed: " + failure.message;
  }
  if (failure.cause == Cause::kSignal && failure.message.empty()) failure.message = reason_of_signal(worker.status->signal);
  if (blame(worker) == 3) failure.cause = Cause::kStopped;
  return failure;
}

}  // namespace ddprun
