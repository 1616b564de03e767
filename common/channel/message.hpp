// What an agent and one of its workers say to each other over the worker channel (a Unix stream socket pair; its descriptor
// number is in the worker's environment as DDPRUN_CHANNEL=fd:N). Values only: codec.hpp turns them into frames and back,
// launcher/ and trainer/ each hold one end; so may a script (python/ddprun, docs/worker-channel.md). A worker that never speaks
// is fine: everything here is extra evidence.
//
// The channel has a version, major.minor. A newer minor only adds messages and fields: the other side ignores those that it
// does not know, and fields that an older one lacks have a default (`later` in fields.hpp). Anything else is a new major.
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
inline constexpr int kProtocolMinor = 1;  // 1: Hello.minor, Progress.figures, SavesOnStop, Stage::kSomewhere

// ---- worker to agent ----

// The first message. Of another major version only `protocol`, `minor` and `version` are read, and nothing after it.
struct Hello {
  int protocol = kProtocolMajor;
  std::string version{};  // ddptrain's, with its LibTorch's
  std::int64_t pid = 0;
  int minor = kProtocolMinor;
};

enum class Phase { kStarting, kJoining, kRunning, kSaving, kEvaluating, kDone };

// Sent at each change of phase. step counts finished optimizer steps of the whole job.
struct PhaseChange {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
};

// Sent a few times in a second (trainer/loop/run_log.hpp): the heartbeat. Only rank 0 fills the figures, at logged steps.
struct Progress {
  std::int64_t step = 0;         // finished
  std::int64_t steps_total = 0;  // of the whole run
  std::int64_t epoch = 0;        // counted from 0
  std::int64_t epochs = 0;
  std::int64_t samples = 0;      // of the whole job, since the run began
  std::optional<double> loss{};  // mean over the global batch of the newest logged step
  std::optional<double> lr{};
  std::optional<double> samples_per_s{};
  FigureList figures{};  // others, by the names that the program gives them; at most kMaxFigures of codec.hpp
};

struct EvalResult {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  FigureList figures{};  // likewise
  std::int64_t samples = 0;
};

enum class ErrorKind {
  kException,     // anything without a kind of its own
  kUsage,         // config, data: do not restart
  kOutOfMemory,   // device or host allocator refused
  kLostPeer,      // a collective failed because another rank is gone: a consequence, never the cause
  kDiverged,      // NaN loss
  kCheckpoint,    // saving failed (training goes on), or nothing valid to resume from
  kCorruptState,  // the ranks' states differ although each has done the same
  kSuperseded,    // another process goes on with this run: do not restart
};

// After running out of memory: whether the next process will ask for less.
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
  bool fatal = true;         // false: a warning, the worker goes on
  int exit_code = 1;         // what the worker will exit with when fatal
  Shrink shrink = Shrink::kNothingKnown;
  bool others_suspect = false;  // kCorruptState: nobody can tell which rank's state is right, so none is to be kept
};

struct CheckpointPublished {
  std::int64_t step = 0;
  std::string path{};
  double pause_s = 0;  // how long training stood still for it
  double save_s = 0;
  std::int64_t bytes = 0;
};

// A bare SIGTERM (or another handled signal) reached the worker: what does the agent want? The agent answers with Stop, or
// with Carry when the signal was not its doing and should be ignored.
struct SignalReceived {
  int signal = 0;
};

// Answer to Stop{save}: the number of steps this worker has started. From here until StopAt arrives it starts no further one.
struct StopReady {
  std::int64_t started = 0;
};

// From a script: it will agree on a step and save when it gets Stop{save}. ddptrain need not say so.
struct SavesOnStop {};

// Before the first group: this worker can leave a group when it is ordered to (Gloo's; NCCL's it cannot). One worker's word
// holds for all of them, since they have one config. Without it no regroup is ordered.
struct Regroupable {};

// Answer to Regroup: this worker has left the old group. `step` counts the finished steps of the state that it holds; -1: it
// holds none.
struct RegroupReady {
  int generation = 0;
  std::int64_t step = -1;
};

// All ranks of that generation are together and hold the state after `step` steps: training begins, or goes on.
struct Regrouped {
  int generation = 0;
  std::int64_t step = 0;
};

// From a standby worker: LibTorch and the data set are loaded, the model is made, and it waits for TakeOver, doing nothing.
struct StandbyReady {};

// Where in a step a running worker is, in the order in which a step goes through it. A worker waits for others in kBackward
// (gradients), kLoss (of logged steps only) and kMeeting. An evaluation is in kForward, then waits in kLoss. In kComparing,
// where it waits as well, it is when a step has just been finished. A script does not say where in a step it is: kSomewhere.
enum class Stage { kLoading, kForward, kBackward, kLoss, kOptimizer, kMeeting, kComparing, kSomewhere };

// Answer to Where, by a thread that runs even when the training thread waits. `stage` means something while running or
// evaluating.
struct Position {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;  // finished
  Stage stage = Stage::kLoading;
};

// c10d::Store operations. Keys are at most 4 KiB, values at most 16 MiB. Binary values travel behind the JSON of the frame.
struct StoreRequest {
  enum class Op { kSet, kGet, kTryGet, kWait, kAdd, kCompareSet, kDelete, kCheck, kNumKeys };
  std::uint64_t id = 0;
  Op op = Op::kGet;
  std::vector<std::string> keys{};  // one, but for wait and check
  std::string value{};              // set: value; compare_set: desired
  std::string expected{};           // compare_set
  std::int64_t amount = 0;          // add
  std::int64_t timeout_ms = 0;      // get, wait: answer kTimeout after that long; 0: at once, negative: never
};

using FromWorker =
    std::variant<Hello, PhaseChange, Progress, EvalResult, WorkerError, CheckpointPublished, SignalReceived, StopReady,
                 SavesOnStop, Regroupable, RegroupReady, Regrouped, StandbyReady, Position, StoreRequest>;

// ---- agent to worker ----

// now: drop everything and exit. save: agree with the other ranks on a step (StopReady, StopAt), save there, exit with
// kPreempted. deadline_ms counts from the receipt; a worker that can't make it exits without saving.
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

// The signal that was asked about is not the agent's: go on.
struct Carry {
  int signal = 0;
};

// A worker was lost and another one takes its place: leave the group at once, whatever it is doing, answer with RegroupReady
// and make the group of that generation, on store keys of its own (process_group.hpp). A newer one replaces an older one.
struct Regroup {
  int generation = 0;  // of the new worker's first group
  // This worker's place in the new group, when there are many machines; rank -1: it is as it was.
  int rank = -1;
  int world_size = 0;
  int group_rank = 0;
  int group_world_size = 0;
};

// The same on many machines, before it is known who is in the next round: leave the group at once and wait for Regroup.
struct Hold {};

// To a standby worker: from now on it is the worker of this rank, as if it had been started for it with that restart count.
// May come before it is ready.
struct TakeOver {
  int rank = 0;
  int local_rank = 0;
  int restart_count = 0;
};

// Nothing has been heard of any worker for long: where are you?
struct Where {};

struct StoreReply {
  enum class Status { kOk, kTimeout, kNotFound, kError };
  std::uint64_t id = 0;
  Status status = Status::kOk;
  std::string value{};      // get, try_get, compare_set: the value now stored
  std::int64_t number = 0;  // add: new sum; delete, check: 0 or 1; num_keys: count
  std::string message{};    // kError
};

using FromAgent = std::variant<Stop, StopAt, Carry, Regroup, Hold, TakeOver, Where, StoreReply>;

}  // namespace ddprun::channel
