// What an agent and one of its workers say to each other over the worker channel (a Unix stream socket pair; its descriptor
// number is in the worker's environment as DDPRUN_CHANNEL=fd:N). Values only: codec.hpp turns them into frames and back. The
// launcher has one end; the trainer has the other, or a script (python/ddprun, docs/worker-channel.md). A worker may send
// nothing at all: the messages only add evidence.
//
// The channel has a version, major.minor. A newer minor version only adds messages and fields: the other side ignores unknown
// ones, and a field that an older version lacks has a default (`later` in fields.hpp). An unknown Stage is read as kSomewhere.
// Any other change is a new major version.
//
// The channel also carries the workers' c10d store (decision 10): store requests have an id that the answer repeats, may
// come from several threads of the worker, and may be answered out of order ("wait" waits).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/figure.hpp"

namespace ddprun::channel {

inline constexpr int kProtocolMajor = 1;
// 1: Hello.minor, Progress.figures, SavesOnStop, Stage::kSomewhere; 2: Progress.figures_step; 3: Pace; 4: Stage::kBatchNorm
inline constexpr int kProtocolMinor = 4;

// ---- worker to agent ----

// The first message. If its major version is another one, only `protocol`, `minor` and `version` are read, and nothing after
// it.
struct Hello {
  int protocol = kProtocolMajor;
  std::string version{};  // of ddptrain and its LibTorch
  std::int64_t pid = 0;
  int minor = kProtocolMinor;
};

enum class Phase { kStarting, kJoining, kRunning, kSaving, kEvaluating, kDone };

// Sent at each change of phase. `step` counts finished optimizer steps of the whole job.
struct PhaseChange {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
};

// The heartbeat, sent a few times a second (trainer/loop/run_log.hpp). Only rank 0 fills in the figures, at logged steps.
struct Progress {
  std::int64_t step = 0;         // finished steps
  std::int64_t steps_total = 0;  // of the whole run
  std::int64_t epoch = 0;        // counted from 0
  std::int64_t epochs = 0;
  std::int64_t samples = 0;      // of the whole job, from the run's beginning
  std::optional<double> loss{};  // the mean over the global batch of the newest logged step
  std::optional<double> lr{};
  std::optional<double> samples_per_s{};
  FigureList figures{};                        // other figures, under the program's own names; at most kMaxFigures of codec.hpp
  std::optional<std::int64_t> figures_step{};  // the step of loss, lr and figures, where that is an earlier one than `step`
};

struct EvalResult {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  FigureList figures{};  // as in Progress
  std::int64_t samples = 0;
};

// How long some steps took on one rank, all of them together.
struct StepTime {
  std::int64_t step = 0;        // the newest of them
  std::int64_t steps = 1;       // how many
  std::int64_t own_us = 0;      // what this rank did, or was kept from, by itself
  std::int64_t waiting_us = 0;  // how long it waited for the others in collectives
  std::int64_t data_us = 0;     // of own_us: until it had its batch
  bool operator==(const StepTime&) const = default;
};

// The steps since the last such message, five times a second at most (step_times.hpp). Only where a rank can tell the two
// apart: step times alone are equal on all ranks.
struct Pace {
  std::vector<StepTime> times{};  // at most kMaxStepTimes of codec.hpp
};

enum class ErrorKind {
  kException,     // an exception without a kind of its own
  kUsage,         // the config or the data is wrong: do not restart
  kOutOfMemory,   // the device's or the host's allocator refused
  kLostPeer,      // a collective failed because another rank is gone: a consequence, never the cause
  kDiverged,      // NaN loss
  kCheckpoint,    // saving failed and training continues, or no checkpoint to resume from is valid
  kCorruptState,  // the ranks' states differ although each rank has done the same
  kSuperseded,    // another process continues this run: do not restart
};

// After an out-of-memory error: whether the next process will need less memory.
enum class Shrink { kNothingKnown, kDone, kNothingLeft };

struct WorkerError {
  ErrorKind kind = ErrorKind::kException;
  std::string message{};
  std::string device{};  // "cpu", "cuda:1"
  std::int64_t step = 0;
  Phase phase = Phase::kRunning;
  std::optional<std::int64_t> bytes_asked{};
  std::optional<std::int64_t> bytes_free{};
  std::int64_t time_ns = 0;  // CLOCK_REALTIME
  bool fatal = true;         // false: a warning, and the worker continues
  int exit_code = 1;         // if fatal: the exit code with which the worker ends
  Shrink shrink = Shrink::kNothingKnown;
  bool others_suspect = false;  // no rank may keep its state: nobody knows whose is right, or the ranks run different programs
};

struct CheckpointPublished {
  std::int64_t step = 0;
  std::string path{};
  double pause_s = 0;  // how long training paused for it
  double save_s = 0;
  std::int64_t bytes = 0;
};

// A handled signal such as SIGTERM reached the worker, which asks what to do. The agent answers Stop, or IgnoreSignal when it
// did not send the signal and the worker should ignore it.
struct SignalReceived {
  int signal = 0;
};

// Answer to Stop{save}: the number of steps that this worker has started. It starts no further step before StopAt arrives.
struct StopReady {
  std::int64_t started = 0;
};

// From a script: it will agree on a step and save after Stop{save}. ddptrain always does, so it need not send this.
struct SavesOnStop {};

// Sent before the first group: this worker can leave its group when it is ordered to (a Gloo group; NCCL can't). All workers
// have one config, so one worker's message holds for all. Without it the agent orders no regroup.
struct Regroupable {};

// Answer to Regroup: this worker has left the old group. `step` is the step of the state that it holds; -1: it holds none.
struct RegroupReady {
  int generation = 0;
  std::int64_t step = -1;
};

// All ranks of that generation have joined the group and hold the state after `step` steps: training begins or continues.
struct GroupFormed {
  int generation = 0;
  std::int64_t step = 0;
};

// From a standby worker: it has loaded LibTorch and the data set, has made the model, and waits idle for AssignRank.
struct StandbyReady {};

// Where in a step a running worker is, in the order of a step. It waits for other ranks in kBatchNorm (a synced one, within the
// forward or backward pass), in kBackward (for gradients), in kLoss (at logged steps only), in kMeeting, and in kComparing,
// which follows a finished step. An evaluation is in kForward, then waits in kLoss. A script does not tell its stage:
// kSomewhere.
enum class Stage { kLoading, kForward, kBatchNorm, kBackward, kLoss, kOptimizer, kMeeting, kComparing, kSomewhere };

// Answer to PositionRequest. A thread sends it that runs even when the training thread waits. `stage` is valid while running or
// evaluating.
struct Position {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;  // finished steps
  Stage stage = Stage::kLoading;
};

// Operations of c10d::Store. Keys have at most 4 KiB, values at most 16 MiB. Binary values follow the frame's JSON.
struct StoreRequest {
  enum class Op { kSet, kGet, kTryGet, kWait, kAdd, kCompareSet, kDelete, kCheck, kNumKeys };
  std::uint64_t id = 0;
  Op op = Op::kGet;
  std::vector<std::string> keys{};  // one key, except for wait and check
  std::string value{};              // set: the value; compare_set: the desired value
  std::string expected{};           // compare_set
  std::int64_t amount = 0;          // add
  std::int64_t timeout_ms = 0;      // get, wait: after that long the answer is kTimeout; 0: at once, negative: never
};

using FromWorker =
    std::variant<Hello, PhaseChange, Progress, EvalResult, Pace, WorkerError, CheckpointPublished, SignalReceived, StopReady,
                 SavesOnStop, Regroupable, RegroupReady, GroupFormed, StandbyReady, Position, StoreRequest>;

// ---- agent to worker ----

// now: drop everything and exit. save: agree with the other ranks on a step (StopReady, StopAt), save at it, and exit with
// kPreempted. deadline_ms counts from the receipt; a worker that can't finish in time exits without saving.
struct Stop {
  enum class Mode { kSave, kNow };
  Mode mode = Mode::kNow;
  std::int64_t deadline_ms = 0;
  std::string reason{};  // "SIGTERM", "worker 1 failed"
};

// The step at which every rank stops and saves: the largest `started` of all ranks.
struct StopAt {
  std::int64_t step = 0;
};

// The agent did not send the signal that the worker asked about: ignore it.
struct IgnoreSignal {
  int signal = 0;
};

// A worker was lost and a replacement takes its rank. Leave the group at once, whatever you are doing, answer RegroupReady, and
// join the group of that generation, whose store keys are its own (process_group.hpp). A newer Regroup replaces an older one.
struct Regroup {
  int generation = 0;  // of the replacement's first group
  // On many machines: this worker's rank in the new group; -1: the rank stays.
  int rank = -1;
  int world_size = 0;
  int group_rank = 0;
  int group_world_size = 0;
};

// On many machines, before the members of the next round are known: leave the group at once and wait for Regroup.
struct Hold {};

// To a standby worker: from now on it is the worker with this rank, as if it had been started with that rank and restart count.
// It may come before the standby is ready.
struct AssignRank {
  int rank = 0;
  int local_rank = 0;
  int restart_count = 0;
};

// No worker has reported anything for long: where are you?
struct PositionRequest {};

struct StoreReply {
  enum class Status { kOk, kTimeout, kNotFound, kError };
  std::uint64_t id = 0;
  Status status = Status::kOk;
  std::string value{};      // get, try_get, compare_set: the value in the store now
  std::int64_t number = 0;  // add: the new sum; delete, check: 0 or 1; num_keys: the count
  std::string message{};    // kError
};

using FromAgent = std::variant<Stop, StopAt, IgnoreSignal, Regroup, Hold, AssignRank, PositionRequest, StoreReply>;

}  // namespace ddprun::channel
