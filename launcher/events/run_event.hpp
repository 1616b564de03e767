// What happened, as one stream of values: the agent emits them, the console shows them, the report keeps them. Times are
// nanoseconds of CLOCK_REALTIME unless named otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "common/failure/cause.hpp"
#include "common/failure/exit_status.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun {

// "rank 0", "ranks 0, 2 and 30 more"
std::string ranks_text(const std::vector<int>& ranks);

// Why a round failed: the first cause, with its evidence.
struct Failure {
  Cause cause = Cause::kExitCode;
  int rank = -1;
  std::int64_t pid = 0;
  std::optional<ExitStatus> status;
  int local_rank = -1;
  std::string host;                      // the node's
  std::string message;                   // of the worker's error, of the error file, or the errno of a failed spawn
  std::string call_stack;                // from the error file: Python's
  std::string error_file;                // the path of the error file; empty when there is none
  std::vector<std::string> stderr_tail;  // its last lines: at most 20, each at most 1 KiB
  std::vector<std::string> evidence{};   // lines for people: memory figures, a hanging rank's stack
  std::string log_path;                  // of stderr.log; empty when stderr is in no file
  std::int64_t log_line = 0;             // the line of stderr.log with which stderr_tail begins, from 1; 0: unknown
  std::int64_t step = -1;                // the last step that the rank reported; -1: none
  std::int64_t time_ns = 0;
};

// A short text: the exit status if that is the cause, else the message.
std::string how_it_failed(const Failure& failure);

struct RunStarted {
  std::int64_t time_ns;
  int world_size;
};
struct RoundStarted {
  int round;
  int restart_count;
  int world_size;  // all workers of the job
  std::int64_t time_ns;
  int workers_here = 0;  // how many of them run on this node; 0: all do
  int group_rank = 0;
  int nodes = 1;
  bool regroup = false;  // only lost workers are started, the others keep running
};
// In a job on many machines a node has joined, left or become the coordinator.
struct NodesChanged {
  rendezvous::NodeNotice notice;
  std::int64_t time_ns;
};
// In a job on many machines the coordinator did not answer this node, so its workers were stopped: the other nodes may have
// continued without it. This is no failure of a worker. The node looks for the job.
struct CutOff {
  int round;
  double seconds;  // how long the coordinator had not answered then
  std::int64_t time_ns;
};
inline constexpr const char* kCutOff = "cut_off";  // the cause's name in the report
std::string describe(const CutOff& event);
struct WorkerStarted {
  int rank;
  int local_rank;
  std::int64_t pid;
  std::int64_t time_ns;
  bool standby = false;  // its process was a standby before
};
struct WorkerSpoke {
  int rank;
  channel::FromWorker message;
  std::int64_t time_ns;
};
// A worker that was stopped, by a signal such as SIGSTOP, continues.
struct WorkerContinued {
  int rank;
  double stopped_s;
  std::int64_t time_ns;
};
struct WorkerEnded {
  int rank;
  std::int64_t pid;
  ExitStatus status;
  bool asked_to_stop;
  std::int64_t time_ns;
};
// The decision after a failed round.
struct RoundFailed {
  int round;
  Failure first;
  std::vector<Failure> consequences;
  enum class Decision { kRestart, kRegroup, kGiveUp } decision;
  std::string why;  // "restart 1 of 3", "budget of 3 spent", "usage errors are not restarted"
  std::int64_t time_ns;
};
const char* name_of(RoundFailed::Decision decision);  // "restart", "regroup", "give_up"
// After a loss that was answered with kRegroup: all workers of the new round have formed a group and continue.
struct Regrouped {
  int round;
  std::vector<int> kept;        // ranks whose state survived; empty: they resume from the newest checkpoint
  std::vector<int> replaced;    // ranks that have a new process
  std::vector<int> by_standby;  // those whose new process was a standby
  std::int64_t step;            // finished
  double seconds;               // since the loss
  std::int64_t time_ns;
};
// The workers formed no new group; all workers restart from the newest checkpoint.
struct RegroupFailed {
  int round;
  std::string why;
  std::int64_t time_ns;
};
// A standby worker, or a script's spare interpreter, has loaded everything and waits for a rank.
struct StandbyWaits {
  std::int64_t pid;
  std::int64_t time_ns;
  double loaded_s = 0;            // of a spare interpreter: how long it took
  std::int64_t memory_bytes = 0;  // likewise: that no other process shares
};
// A standby ended while it waited, without being asked to. The job continues, and another standby is started.
struct StandbyEnded {
  std::int64_t pid;  // 0: it could not be started
  std::optional<ExitStatus> status;
  std::string message;  // what it reported, or its last line of output; may be empty
  double next_in_s;     // until the next one is started; negative: none is, since it would do no better
  std::int64_t time_ns;
};
// The agent got a signal.
struct StopRequested {
  int signal;
  enum class Effect { kStops, kNothingNew, kKills } effect;
  std::int64_t time_ns;
};
// Workers were told to stop long ago, and some have not ended. Emitted once a round.
struct StopIsSlow {
  struct Awaited {
    int rank;
    std::int64_t pid;
    std::string summary;  // what the kernel says about it (process_summary.hpp); may be empty
  };
  double seconds;
  std::optional<Failure> first;  // why the workers are stopped, as far as it is known now
  std::vector<Awaited> awaited;
  std::int64_t time_ns;
};
std::string describe(const StopIsSlow& event);
// Some workers of a script exited with code 0 a while ago, without being asked to, while others of this node still run. Emitted
// once a round.
struct WorkersLeft {
  double seconds;
  std::vector<int> ended;    // ranks, the first of them `seconds` ago
  std::vector<int> running;  // ranks
  std::int64_t time_ns;
};
std::string describe(const WorkersLeft& event);
// The agent ignores a script's worker on the channel from now on: it speaks another major version, or sends garbage. The job
// continues.
struct HelperIgnored {
  int rank;
  std::string why;
  std::int64_t time_ns;
};
std::string describe(const HelperIgnored& event);
HelperIgnored no_protocol(int rank, const std::string& error, std::int64_t time_ns);
// What keeps all ranks from stepping faster. kNetwork: no rank does, the exchange between them takes long.
enum class StragglerKind { kProcessor, kDisk, kData, kNetwork, kCompute };
const char* name_of(StragglerKind kind);  // "processor", "disk", "data", "network", "compute"
// One rank computes longer while the others wait for it, or does so no more. Emitted on the node of rank 0. Times are those of
// a step.
struct Straggler {
  int rank = -1;  // of kNetwork: the first of the node whose link is slow; -1: nobody can tell
  std::int64_t pid = 0;
  StragglerKind kind = StragglerKind::kCompute;
  bool ended = false;
  std::int64_t from_step = 0;  // of those that were looked at
  std::int64_t step = 0;
  double own_s = 0;         // what the rank did by itself; of kNetwork: how long the exchange takes
  double others_s = 0;      // the same of the others, in the middle; of kNetwork: how long it took before
  double part_s = 0;        // of the difference: what the kind explains
  double round_trip_s = 0;  // of kNetwork with a rank: of the node's quickest connection
  double others_round_trip_s = 0;
  std::int64_t time_ns = 0;
};
std::string describe(const Straggler& event);
// Processes that workers left behind. kAwaited: the worker's own process exited with 0, and one that it left works for the job,
// which continues. kEnded: they were sent SIGTERM or SIGKILL; several that were ended together are one event.
struct LeftoversFound {
  enum class What { kAwaited, kEnded } what = What::kEnded;
  int rank = -1;                         // kAwaited
  std::vector<std::string> processes{};  // "4711 python train.py"
  std::int64_t time_ns = 0;
};
std::string describe(const LeftoversFound& event);
// Workers are started again after others have read from the standard input that they share. Emitted at each such restart.
struct InputWasRead {
  std::string what;  // what the new workers will miss
  std::int64_t time_ns;
};
// The first output of any of this node's workers in a round. Not emitted where all write to files themselves.
struct FirstOutput {
  int rank;
  double seconds;  // since they were started
  std::int64_t time_ns;
};
// The run directory was removed, renamed or replaced. Emitted once.
struct RunDirectoryRemoved {
  std::string path;
  std::int64_t time_ns;
};
struct RunEnded {
  int exit_code;
  std::string why;
  int restarts_used;
  std::int64_t time_ns;
  double seconds = -1;  // since the run started, on a clock that nobody sets; below 0: unknown
};

using RunEvent =
    std::variant<RunStarted, RoundStarted, NodesChanged, CutOff, WorkerStarted, WorkerSpoke, WorkerEnded, WorkerContinued,
                 Straggler, RoundFailed, Regrouped, RegroupFailed, StandbyWaits, StandbyEnded, StopRequested, StopIsSlow,
                 WorkersLeft, LeftoversFound, HelperIgnored, InputWasRead, FirstOutput, RunDirectoryRemoved, RunEnded>;

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on(const RunEvent& event) = 0;
};

}  // namespace ddprun
