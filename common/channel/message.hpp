// The messages between an agent and one of its workers. They travel over the worker channel, a Unix stream socket pair. The
// worker finds its descriptor number in DDPRUN_CHANNEL=fd:N. These structs are values only: codec.hpp turns them into frames
// and back, and fields.hpp lists their fields. The launcher has one end. The trainer or a script (python/ddprun,
// docs/worker-channel.md) has the other.
//
// The problem. From outside, the agent sees a process, its output and at last an exit status. A signal is all that it can send.
// That is too little:
// - SIGTERM can mean "save and stop" or "stop now". At Slurm's time limit it killed scripts while their agents still agreed on
//   a step. Nothing was saved.
// - Ranks that stop at different steps hang: the last all-reduce waits for a rank that has left.
// - PyTorch's TCPStore lives in rank 0. It dies with rank 0 and opens a port to everybody on the network.
//
// The idea. Messages add evidence and orders, but a worker may send nothing at all. The agent then judges by exit codes,
// signals and error files. A closed channel proves nothing; the pidfd shows when a worker has ended. Stop{now} arrives before
// its signal and gives the signal a meaning. Stop{save} needs no signal. An example, where rank 1 waits in the all-reduce of
// step 120:
//
//     agent  -> ranks 0, 1   Stop{save}
//     rank 0 -> agent        StopReady{119}   it has started 119 steps and starts no further one
//     rank 1 -> agent        StopReady{120}
//     agent  -> ranks 0, 1   StopAt{120}      rank 0 runs step 120 as well and saves; both exit with 85
//
// The channel also carries the c10d store of ddptrain (decision 10). A wait blocks one thread of the worker, while others use
// the store. So each request has an id that its reply repeats, and replies may come in any order.
//
// Versions. Nodes and programs are updated one at a time, so the two ends may differ. The channel has a version, major.minor. A
// newer minor version only adds messages and fields. The receiver ignores those that it does not know. A missing new field has
// a default (`later` in fields.hpp). An unknown Stage is read as kSomewhere: it is evidence, and decides nothing alone. Any
// other change needs a new major version, also a new word of another enum.
//
// The cost. No field leaves a major version: WorkerError.exit_code stays, although the agent no longer uses it. Each message
// wakes the agent, so workers send Progress and Pace only a few times a second.
//
// What was tried. Until 1.1 the decoder refused unknown fields, and another version of ddptrain ended as "worker channel
// closed". A stop flag in an all-reduce costs each step a round trip. Base64 in the JSON costs a third more bytes and a copy,
// so store values follow the JSON. The records are in docs/internals/decisions/channel.
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

// The first message. If its major version differs, the agent reads only `protocol`, `minor` and `version`, and ignores all
// later messages.
struct Hello {
  int protocol = kProtocolMajor;
  std::string version{};  // versions of ddptrain and its LibTorch
  std::int64_t pid = 0;
  int minor = kProtocolMinor;
};

enum class Phase { kStarting, kJoining, kRunning, kSaving, kEvaluating, kDone };

// Sent at each change of phase. `step` is the number of finished optimizer steps of the whole job.
struct PhaseChange {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
};

// The heartbeat, sent a few times a second (trainer/loop/run_log.hpp). Only rank 0 fills in the metrics, at logged steps.
struct Progress {
  std::int64_t step = 0;         // finished steps
  std::int64_t steps_total = 0;  // steps of the whole run
  std::int64_t epoch = 0;        // counted from 0
  std::int64_t epochs = 0;
  std::int64_t samples = 0;      // samples of all ranks since the start of the run
  std::optional<double> loss{};  // mean over the global batch of the newest logged step
  std::optional<double> lr{};
  std::optional<double> samples_per_s{};
  FigureList figures{};                        // other metrics, under the program's own names; at most kMaxFigures of codec.hpp
  std::optional<std::int64_t> figures_step{};  // step of loss, lr and figures, if it is earlier than `step`
};

struct EvalResult {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  FigureList figures{};  // as in Progress
  std::int64_t samples = 0;
};

// The total time of some steps on one rank.
struct StepTime {
  std::int64_t step = 0;        // the newest of these steps
  std::int64_t steps = 1;       // number of steps
  std::int64_t own_us = 0;      // time that does not depend on other ranks: work and delays of this rank
  std::int64_t waiting_us = 0;  // time in collectives that wait for other ranks
  std::int64_t data_us = 0;     // part of own_us: the wait for the batch
  bool operator==(const StepTime&) const = default;
};

// Times of the steps since the last Pace, sent at most five times a second (step_times.hpp). A rank sends it only if it can
// separate own_us from waiting_us: the sum is equal on all ranks and shows no straggler.
struct Pace {
  std::vector<StepTime> times{};  // at most kMaxStepTimes of codec.hpp
};

enum class ErrorKind {
  kException,     // any other exception
  kUsage,         // the config or the data is wrong: do not restart
  kOutOfMemory,   // an allocation on the device or the host failed
  kLostPeer,      // a collective failed because another rank is gone: a consequence, never the cause
  kDiverged,      // NaN loss
  kCheckpoint,    // saving failed and training continues, or no checkpoint to resume from is valid
  kCorruptState,  // the states of the ranks differ although all ran the same steps
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
  bool others_suspect = false;  // no rank may keep its state: the right one is unknown, or the ranks run different programs
};

struct CheckpointPublished {
  std::int64_t step = 0;
  std::string path{};
  double pause_s = 0;  // pause of training for this checkpoint
  double save_s = 0;
  std::int64_t bytes = 0;
};

// A handled signal such as SIGTERM reached the worker itself. During a stop the agent answers Stop. Otherwise ddptrain gets
// IgnoreSignal, and a script's report stops the whole job.
struct SignalReceived {
  int signal = 0;
};

// The answer to Stop{save}: the number of steps that this worker has started. It starts no further step before StopAt arrives.
struct StopReady {
  std::int64_t started = 0;
};

// A script sends it if it agrees on a step and saves after Stop{save}. ddptrain always does and need not send it.
struct SavesOnStop {};

// Sent before the first group: this worker can leave its group on order. It can leave a Gloo group, but an NCCL group only with
// --recovery live. All workers have one config, so the message of one holds for all. Without it the agent orders no regroup.
struct Regroupable {};

// The answer to Regroup: this worker has left the old group. `step` is the step of its state; -1: it holds no state.
struct RegroupReady {
  int generation = 0;
  std::int64_t step = -1;
};

// All ranks of that generation have joined the group and hold the state after `step` steps. Training starts or resumes.
struct GroupFormed {
  int generation = 0;
  std::int64_t step = 0;
};

// A standby sends it when it has loaded LibTorch and the data set and has made the model. It waits idle for AssignRank.
struct StandbyReady {};

// The stages of a step, in order. A worker can wait for other ranks in kBatchNorm, kBackward, kLoss, kMeeting and kComparing.
// kBatchNorm is synchronized batch norm, in the forward or backward pass. In kBackward it waits for gradients, in kLoss only at
// logged steps. kComparing follows a finished step. An evaluation is in kForward and then waits in kLoss. A script reports no
// stage: kSomewhere.
enum class Stage { kLoading, kForward, kBatchNorm, kBackward, kLoss, kOptimizer, kMeeting, kComparing, kSomewhere };

// The answer to PositionRequest. A separate thread sends it, also while the training thread waits. `stage` is valid in the
// phases kRunning and kEvaluating.
struct Position {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;  // finished steps
  Stage stage = Stage::kLoading;
};

// An operation of c10d::Store. A key has at most 4 KiB, a value at most 16 MiB. Binary values follow the JSON of the frame.
struct StoreRequest {
  enum class Op { kSet, kGet, kTryGet, kWait, kAdd, kCompareSet, kDelete, kCheck, kNumKeys };
  std::uint64_t id = 0;
  Op op = Op::kGet;
  std::vector<std::string> keys{};  // one key, except for wait and check
  std::string value{};              // set: the value; compare_set: the desired value
  std::string expected{};           // compare_set
  std::int64_t amount = 0;          // add
  std::int64_t timeout_ms = 0;      // get, wait: time until the answer kTimeout; 0: immediately, negative: never
};

using FromWorker =
    std::variant<Hello, PhaseChange, Progress, EvalResult, Pace, WorkerError, CheckpointPublished, SignalReceived, StopReady,
                 SavesOnStop, Regroupable, RegroupReady, GroupFormed, StandbyReady, Position, StoreRequest>;

// ---- agent to worker ----

// now: exit immediately. save: agree with the other ranks on a step (StopReady, StopAt), save there, and exit with kPreempted.
// deadline_ms starts at the receipt. A worker that can't finish in time exits without saving.
struct Stop {
  enum class Mode { kSave, kNow };
  Mode mode = Mode::kNow;
  std::int64_t deadline_ms = 0;
  std::string reason{};  // "SIGTERM", "worker 1 failed"
};

// The step at which every rank stops and saves: the largest StopReady.started of all ranks.
struct StopAt {
  std::int64_t step = 0;
};

// The reported signal did not come from the agent: ignore it.
struct IgnoreSignal {
  int signal = 0;
};

// A worker was lost, and a replacement takes its rank. The receiver leaves its group immediately, even inside a collective. It
// answers RegroupReady and joins the group of that generation, which has separate store keys (process_group.hpp). A newer
// Regroup replaces an older one.
struct Regroup {
  int generation = 0;  // generation of the first group with the replacement
  // The rank of this worker in the new group; -1: the rank stays.
  int rank = -1;
  int world_size = 0;
  int group_rank = 0;
  int group_world_size = 0;
};

// Multi-node, sent before the members of the next round are known: leave the group immediately and wait for Regroup.
struct Hold {};

// To a standby: it becomes the worker of this rank, as if it had started with this rank and restart count. The message may
// arrive before the standby is ready.
struct AssignRank {
  int rank = 0;
  int local_rank = 0;
  int restart_count = 0;
};

// Sent when the workers have made no progress for too long. The worker answers Position.
struct PositionRequest {};

struct StoreReply {
  enum class Status { kOk, kTimeout, kNotFound, kError };
  std::uint64_t id = 0;
  Status status = Status::kOk;
  std::string value{};      // get, try_get, compare_set: the value that is now in the store
  std::int64_t number = 0;  // add: the new sum; delete, check: 0 or 1; num_keys: the count
  std::string message{};    // kError
};

using FromAgent = std::variant<Stop, StopAt, IgnoreSignal, Regroup, Hold, AssignRank, PositionRequest, StoreReply>;

}  // namespace ddprun::channel
