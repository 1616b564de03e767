// The messages between an agent and one of its workers. The worker channel carries them: a Unix stream socket pair, one per
// worker. The launcher has one end of the socket pair, and the trainer or a script (python/ddprun, docs/worker-channel.md) has
// the other end. The environment variable DDPRUN_CHANNEL=fd:N contains the worker's descriptor number. These structs are
// values only: codec.hpp encodes and decodes frames, and fields.hpp lists the fields of each message.
//
// The problem. Without a channel, an agent observes only a worker's output and its exit status, and can only send signals. That
// is too little for three reasons:
// - SIGTERM can mean "save and stop" or "stop now". At Slurm's time limit, SIGTERM killed scripts while their agents still
//   agreed on the step at which to save. So nothing was saved.
// - If ranks stop at different steps, the job hangs: the next all-reduce waits for a rank that has exited.
// - PyTorch's TCPStore runs in the process of rank 0. The store is lost when rank 0 dies, and any host on the network can
//   connect to its port.
//
// The idea. Messages are optional. If a worker sends none, the agent judges it by exit code, signals and error file. A closed
// channel does not prove that the worker has ended; only its pidfd does. The agent orders a stop with the Stop message and not
// with a signal: Stop{now} arrives before the SIGTERM, and Stop{save} comes without a signal. Example: the job must stop and
// save while rank 1 waits in the all-reduce of step 120:
//
//     agent  -> ranks 0, 1   Stop{save}
//     rank 0 -> agent        StopReady{119}   rank 0 has started 119 steps and starts no further step
//     rank 1 -> agent        StopReady{120}
//     agent  -> ranks 0, 1   StopAt{120}      rank 0 runs step 120 as well and saves; both exit with 85
//
// The channel also carries the requests of ddptrain to its c10d store (decision 10). One thread of a worker may block in a wait
// while other threads use the store. So each request has an id, its reply has the same id, and replies may come in any order.
//
// Versions. Users update nodes and programs one at a time, so the two ends may have different versions. The channel's version
// is major.minor. A new minor version may only add messages, fields, and values of Stage. A receiver ignores messages and
// fields that it does not know. If a new field is missing, it gets a default (`later` in fields.hpp). A receiver reads an
// unknown Stage as kSomewhere, which is safe because a stage alone decides nothing. Any other change needs a new major version,
// including a new value of another enum.
//
// The cost. A field cannot be removed within a major version: WorkerError.exit_code stays, although the agent no longer reads
// it. Each message wakes the agent's process. So workers send Progress and Pace only a few times a second.
//
// Alternatives tried. Until 1.1 the decoder rejected unknown fields, so a different version of ddptrain failed with "worker
// channel closed". A stop flag in an all-reduce adds a round trip to each step. Base64 in the JSON would cost a third more
// bytes and a copy. So store values follow the JSON as binary data. docs/internals/decisions/channel has the records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/metric.hpp"

namespace ddprun::channel {

inline constexpr int kProtocolMajor = 1;
// Additions of each minor version:
//   1  Hello.minor, Progress.figures, SavesOnStop, Stage::kSomewhere
//   2  Progress.figures_step
//   3  Pace
//   4  Stage::kBatchNorm
inline constexpr int kProtocolMinor = 4;

// ---- worker to agent ----

// The first message. `protocol` and `minor` are the worker's version of the channel. If the agent has a different major
// version, it reads only `protocol`, `minor` and `version`, and ignores all later messages.
struct Hello {
  int protocol = kProtocolMajor;
  std::string version{};  // versions of ddptrain and of its LibTorch, as text for messages
  std::int64_t pid = 0;
  int minor = kProtocolMinor;
};

enum class Phase { kStarting, kJoining, kRunning, kSaving, kEvaluating, kDone };

// The worker enters another phase. `step` is the number of finished optimizer steps since the start of the run.
struct PhaseChange {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
};

// The heartbeat, which a worker sends a few times a second (trainer/loop/run_log.hpp). Only rank 0 sets loss, lr, samples_per_s
// and `figures`, and only at logged steps.
struct Progress {
  std::int64_t step = 0;         // finished steps
  std::int64_t steps_total = 0;  // number of steps of the whole run
  std::int64_t epoch = 0;        // current epoch, counted from 0
  std::int64_t epochs = 0;
  std::int64_t samples = 0;      // samples of all ranks since the start of the run
  std::optional<double> loss{};  // mean loss of the global batch, at the newest logged step
  std::optional<double> lr{};
  std::optional<double> samples_per_s{};
  MetricList figures{};                        // other metrics, named by the program; at most kMaxMetrics (codec.hpp)
  std::optional<std::int64_t> figures_step{};  // step at which loss, lr and `figures` were measured; if absent, `step`
};

struct EvalResult {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  MetricList figures{};  // as in Progress
  std::int64_t samples = 0;
};

// The total time of some consecutive steps on one rank, in microseconds.
struct StepTime {
  std::int64_t step = 0;   // number of the newest step that the times cover
  std::int64_t steps = 1;  // number of steps
  // time that this rank spent on work and delays; the time in which it waited for other ranks does not count
  std::int64_t own_us = 0;
  std::int64_t waiting_us = 0;  // time that this rank waited for other ranks in collectives
  std::int64_t data_us = 0;     // time that this rank waited for its next batch; own_us includes it
  bool operator==(const StepTime&) const = default;
};

// Times of the steps since the last Pace, sent at most five times a second (step_times.hpp). The agent finds stragglers by
// own_us, because own_us + waiting_us is the same on all ranks. A rank that cannot measure the two times separately sends no
// Pace.
struct Pace {
  std::vector<StepTime> times{};  // at most kMaxStepTimes (codec.hpp)
};

enum class ErrorKind {
  kException,     // any other exception
  kUsage,         // the config or the data is wrong, so the job must not restart
  kOutOfMemory,   // an allocation on the device or the host failed
  kLostPeer,      // a collective failed because another rank exited, so this error is never the first failure of a round
  kDiverged,      // the training loss is not finite
  kCheckpoint,    // a save failed and training continues, or there is no valid checkpoint from which to resume
  kCorruptState,  // the training states of the ranks differ after the same steps
  kSuperseded,    // another process continues this run, so this job must not restart
};

// After an out-of-memory error: whether a restarted worker will need less memory. kDone: yes, because the worker has recorded
// a smaller setting. kNothingLeft: no, because no smaller setting exists, so a restart would fail again.
enum class Shrink { kNothingKnown, kDone, kNothingLeft };

struct WorkerError {
  ErrorKind kind = ErrorKind::kException;
  std::string message{};
  std::string device{};  // "cpu", "cuda:1"
  std::int64_t step = 0;
  Phase phase = Phase::kRunning;
  std::optional<std::int64_t> bytes_asked{};
  std::optional<std::int64_t> bytes_free{};
  std::int64_t time_ns = 0;  // time of the error, CLOCK_REALTIME
  bool fatal = true;         // false: a warning, after which the worker continues
  int exit_code = 1;         // the worker's exit code, if `fatal` is true
  Shrink shrink = Shrink::kNothingKnown;
  // true: no rank may keep its training state, because the correct state is unknown or the ranks run different programs
  bool others_suspect = false;
};

struct CheckpointPublished {
  std::int64_t step = 0;
  std::string path{};
  double pause_s = 0;  // how long training paused to save this checkpoint
  double save_s = 0;
  std::int64_t bytes = 0;
};

// The worker process itself has received a signal such as SIGTERM. If the job is already stopping, the agent answers Stop. If
// the job is not stopping, the reaction depends on the worker: ddptrain gets IgnoreSignal, and for a script the agent stops
// the whole job.
struct SignalReceived {
  int signal = 0;
};

// The answer to Stop{save}: the number of steps that this worker has started. The worker then waits for StopAt before it starts
// another step.
struct StopReady {
  std::int64_t started = 0;
};

// Announces that this worker handles Stop{save}: it agrees on a step and saves. Only scripts send SavesOnStop, because
// ddptrain always handles Stop{save}.
struct SavesOnStop {};

// Sent before the worker joins its first process group. It announces that the worker can leave its group if the agent sends
// Regroup. A worker can always leave a Gloo group, but it can leave an NCCL group only with --recovery live. All workers have
// the same config, so one message applies to all of them. Without this message, the agent never sends Regroup.
struct Regroupable {};

// The answer to Regroup: this worker has left the old process group. `step` is the number of steps in its training state, or -1
// if it has no training state.
struct RegroupReady {
  int generation = 0;
  std::int64_t step = -1;
};

// All ranks of the process group with the number `generation` have joined. They have the training state after `step` steps.
// Training now starts or resumes.
struct GroupFormed {
  int generation = 0;
  std::int64_t step = 0;
};

// A standby (a preloaded worker without a rank) has loaded LibTorch and the data set, and has made the model. It now waits for
// AssignRank.
struct StandbyReady {};

// The stages of a step, in order. A worker can wait for other ranks in these stages:
//   kBatchNorm  synchronized batch norm, in the forward or backward pass
//   kBackward   the all-reduce of gradients
//   kLoss       the all-reduce of the loss, only at logged steps and in evaluations
//   kMeeting    the wait for all ranks at the end of the run
//   kComparing  the comparison of the ranks' states after a finished step
// An evaluation has the stages kForward and kLoss. A script does not report its stage, so its Position contains kSomewhere.
enum class Stage { kLoading, kForward, kBatchNorm, kBackward, kLoss, kOptimizer, kMeeting, kComparing, kSomewhere };

// The answer to PositionRequest. A separate thread of the worker sends it, so it is sent even if the training thread is
// blocked. `stage` is only valid in the phases kRunning and kEvaluating.
struct Position {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;  // finished steps
  Stage stage = Stage::kLoading;
};

// An operation of c10d::Store. A key is at most 4 KiB long, and a value at most 16 MiB. The values follow the frame's JSON as
// binary data.
struct StoreRequest {
  enum class Op { kSet, kGet, kTryGet, kWait, kAdd, kCompareSet, kDelete, kCheck, kNumKeys };
  std::uint64_t id = 0;
  Op op = Op::kGet;
  std::vector<std::string> keys{};  // one key; several for wait and check
  std::string value{};              // set: the new value; compare_set: the value to write
  std::string expected{};           // compare_set: the expected value
  std::int64_t amount = 0;          // add: the amount to add
  std::int64_t timeout_ms = 0;      // get, wait: after this time the reply is kTimeout; 0: immediately; negative: no timeout
};

using FromWorker =
    std::variant<Hello, PhaseChange, Progress, EvalResult, Pace, WorkerError, CheckpointPublished, SignalReceived, StopReady,
                 SavesOnStop, Regroupable, RegroupReady, GroupFormed, StandbyReady, Position, StoreRequest>;

// ---- agent to worker ----

// Orders the worker to stop. kNow: the worker must exit immediately. kSave: the worker must agree with the other ranks on a
// step (StopReady, StopAt). It saves after that step, and exits with ExitCode::kPreempted. deadline_ms counts from the receipt
// of the message. A worker that cannot save within that time exits without saving.
struct Stop {
  enum class Mode { kSave, kNow };
  Mode mode = Mode::kNow;
  std::int64_t deadline_ms = 0;
  std::string reason{};  // for messages, such as "SIGTERM" or "worker 1 failed"
};

// The step at which every rank stops and saves: the largest StopReady.started of all ranks.
struct StopAt {
  std::int64_t step = 0;
};

// The answer to SignalReceived if the signal did not come from the agent: the worker must ignore it.
struct IgnoreSignal {
  int signal = 0;
};

// Another worker was lost, and a replacement gets its rank. The receiver leaves its process group immediately, even inside a
// collective. Then it answers RegroupReady and joins the new process group, whose number is `generation`. Each group has its
// own store keys (process_group.hpp). A Regroup replaces an earlier Regroup that the worker has not completed.
struct Regroup {
  int generation = 0;  // number of the first process group that includes the replacement
  // The rank of this worker in the new group; -1 if the rank does not change.
  int rank = -1;
  int world_size = 0;
  int group_rank = 0;
  int group_world_size = 0;
};

// Multi-node: a node was lost or added, and the next set of nodes is not known yet. The worker leaves its process group
// immediately, keeps its training state, and waits for Regroup.
struct Hold {};

// Assigns a rank to a standby. The standby then acts as if it had been started with this rank and restart count. The message
// may arrive before the standby has sent StandbyReady.
struct AssignRank {
  int rank = 0;
  int local_rank = 0;
  int restart_count = 0;
};

// The workers have made no progress for too long. The agent queries the stage of each of them, and each answers Position.
struct PositionRequest {};

struct StoreReply {
  enum class Status { kOk, kTimeout, kNotFound, kError };
  std::uint64_t id = 0;
  Status status = Status::kOk;
  std::string value{};      // get, try_get, compare_set: the value in the store after the operation
  std::int64_t number = 0;  // add: the new sum; delete, check: 0 or 1; num_keys: the count
  std::string message{};    // kError: the reason
};

using FromAgent = std::variant<Stop, StopAt, IgnoreSignal, Regroup, Hold, AssignRank, PositionRequest, StoreReply>;

}  // namespace ddprun::channel
