// The events of a run, as one stream of values. The agent emits them, the console shows them, and the report stores them. Times
// are nanoseconds of CLOCK_REALTIME unless stated otherwise.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "common/failure/cause.hpp"
#include "common/failure/exit_status.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun {

// Returns a text such as "rank 0" or "ranks 0, 2 and 30 more".
std::string ranks_text(const std::vector<int>& ranks);

// The reason why a round failed: the first cause, with its evidence.
struct Failure {
  Cause cause = Cause::kExitCode;
  int rank = -1;
  std::int64_t pid = 0;
  std::optional<ExitStatus> status;
  int local_rank = -1;
  std::string host;                      // the node's host name
  std::string message;                   // from the worker's error report or error file, or the errno text of a failed spawn
  std::string call_stack;                // Python's call stack, from the error file
  std::string error_file;                // path of the error file; empty if there is none
  std::vector<std::string> stderr_tail;  // the last lines of stderr: at most 20, each at most 1 KiB
  std::vector<std::string> evidence{};   // lines for users: memory values, the stack of a hanging rank
  std::string log_path;                  // path of stderr.log; empty if stderr goes to no file
  std::int64_t log_line = 0;             // line of stderr.log at which stderr_tail starts, counted from 1; 0: unknown
  std::int64_t step = -1;                // the last step that the rank reported; -1: none
  std::int64_t time_ns = 0;
};

// Returns a short text: the exit status if the cause is only an exit code or a signal, otherwise the message.
std::string describe_failure(const Failure& failure);

struct RunStarted {
  std::int64_t time_ns;
  int world_size;
};
struct RoundStarted {
  int round;
  int restart_count;
  int world_size;  // number of workers in the job
  std::int64_t time_ns;
  int workers_here = 0;  // number of workers on this node; 0: all workers of the job
  int group_rank = 0;
  int nodes = 1;
  bool regroup = false;  // true: only lost workers are started, and the others keep running
};
// In a multi-node job a node has joined, left or become the coordinator.
struct NodesChanged {
  rendezvous::NodeNotice notice;
  std::int64_t time_ns;
};
// The coordinator of a multi-node job did not answer this node. The workers of this node were stopped, since the other nodes
// might have continued without it. So this is not a failure of a worker. The node tries to rejoin the job.
struct CutOff {
  int round;
  double seconds;  // time for which the coordinator had not answered
  std::int64_t time_ns;
};
inline constexpr const char* kCutOff = "cut_off";  // the cause's name in the report
std::string describe(const CutOff& event);
struct WorkerStarted {
  int rank;
  int local_rank;
  std::int64_t pid;
  std::int64_t time_ns;
  bool standby = false;  // the process was a standby (loaded, without a rank) before
};
struct WorkerReported {
  int rank;
  channel::FromWorker message;
  std::int64_t time_ns;
};
// A worker that was stopped by a signal such as SIGSTOP is running again.
struct WorkerContinued {
  int rank;
  double stopped_s;
  std::int64_t time_ns;
};
struct WorkerEnded {
  int rank;
  std::int64_t pid;
  ExitStatus status;
  bool stop_requested;
  std::int64_t time_ns;
};
// A round has failed: its first cause, and the decision about what follows.
struct RoundFailed {
  int round;
  Failure first;
  std::vector<Failure> consequences;
  enum class Decision { kRestart, kRegroup, kGiveUp } decision;
  std::string why;  // for example "restart 1 of 3", "budget of 3 spent", "no restart on a failed GPU: ..."
  std::int64_t time_ns;
};
const char* name_of(RoundFailed::Decision decision);  // returns "restart", "regroup" or "give_up"
// All workers of the new round have formed a process group and continue training. This event follows a RoundFailed with the
// decision kRegroup.
struct Regrouped {
  int round;
  std::vector<int> kept;        // ranks that kept their training state; if empty, all ranks load the newest checkpoint
  std::vector<int> replaced;    // ranks that have a new process
  std::vector<int> by_standby;  // replaced ranks whose new process was a standby
  std::int64_t step;            // number of finished steps
  double seconds;               // time since the worker was lost
  std::int64_t time_ns;
};
// The workers could not form a new group. All workers restart from the newest checkpoint.
struct RegroupFailed {
  int round;
  std::string why;
  std::int64_t time_ns;
};
// A standby worker, or a script's spare interpreter, has loaded everything and waits for a rank.
struct StandbyWaits {
  std::int64_t pid;
  std::int64_t time_ns;
  double loaded_s = 0;            // spare interpreter: time that loading took
  std::int64_t memory_bytes = 0;  // spare interpreter: memory that it shares with no other process
};
// A waiting standby ended by itself. The job continues, and another standby is started.
struct StandbyEnded {
  std::int64_t pid;  // 0: the standby could not be started
  std::optional<ExitStatus> status;
  std::string message;  // the error that the standby reported, or its last line of output; may be empty
  double next_in_s;     // delay until the next standby is started; negative: none is started, since it would also fail
  std::int64_t time_ns;
};
// The agent received a signal.
struct StopRequested {
  int signal;
  enum class Effect { kStops, kNothingNew, kKills } effect;
  std::int64_t time_ns;
};
// Some workers are still running some time after the agent ordered them to stop. Emitted at most once per round.
struct StopIsSlow {
  struct Awaited {
    int rank;
    std::int64_t pid;
    std::string summary;  // the process's state as the kernel reports it (process_summary.hpp); may be empty
  };
  double seconds;
  std::optional<Failure> first;  // the failure for which the workers are stopped, if known
  std::vector<Awaited> awaited;
  std::int64_t time_ns;
};
std::string describe(const StopIsSlow& event);
// Some workers of a script exited with code 0 some time ago, although they were not ordered to stop. Others on this node are
// still running. Emitted at most once per round.
struct WorkersLeft {
  double seconds;
  std::vector<int> ended;    // ranks that exited with code 0; the first of them exited `seconds` ago
  std::vector<int> running;  // ranks that are still running
  std::int64_t time_ns;
};
std::string describe(const WorkersLeft& event);
// From now on the agent ignores the messages of a script's worker. The worker uses a different major version of the protocol,
// or has sent invalid messages. The job continues.
struct HelperIgnored {
  int rank;
  std::string why;
  std::int64_t time_ns;
};
std::string describe(const HelperIgnored& event);
HelperIgnored no_protocol(int rank, const std::string& error, std::int64_t time_ns);
// The resource that slows down all ranks. kNetwork means that no single rank is slow, but the exchange between ranks takes
// long.
enum class StragglerKind { kProcessor, kDisk, kData, kNetwork, kCompute };
const char* name_of(StragglerKind kind);  // returns "processor", "disk", "data", "network" or "compute"
// A rank needs more time per step than the others, which wait for it. If `ended` is true, the rank is no longer slow. Emitted
// on the node of rank 0. Times are seconds per step.
struct Straggler {
  int rank = -1;  // kNetwork: first rank of the node with the slow link; -1: unknown
  std::int64_t pid = 0;
  StragglerKind kind = StragglerKind::kCompute;
  bool ended = false;
  std::int64_t from_step = 0;  // the first step of the evaluated interval
  std::int64_t step = 0;
  // time of the rank's own work, without the time in which it waits for other ranks; kNetwork: time of the exchange between
  // ranks
  double own_s = 0;
  double others_s = 0;             // median of own_s over the other ranks; kNetwork: time of the fastest earlier exchange
  double part_s = 0;               // the part of (own_s - others_s) that `kind` explains
  double round_trip_s = 0;         // kNetwork, if the rank is known: round-trip time of the fastest connection of its node
  double others_round_trip_s = 0;  // kNetwork: round_trip_s of the slowest other node
  std::int64_t time_ns = 0;
};
std::string describe(const Straggler& event);
// Processes that workers left behind. kAwaited: a worker exited with 0, but a process that it started still works for the job,
// so the job continues. kEnded: the processes were sent SIGTERM or SIGKILL; processes that were ended together are reported in
// one event.
struct LeftoversFound {
  enum class What { kAwaited, kEnded } what = What::kEnded;
  int rank = -1;                         // rank of the worker; used only for kAwaited
  std::vector<std::string> processes{};  // pid and command line of each process, such as "4711 python train.py"
  std::int64_t time_ns = 0;
};
std::string describe(const LeftoversFound& event);
// Workers were restarted after earlier workers had read from the shared standard input. Emitted at each such restart.
struct InputWasRead {
  std::string what;  // the input that the new workers will miss
  std::int64_t time_ns;
};
// One of this node's workers has written the first output of a round. Not emitted if all workers write directly to files.
struct FirstOutput {
  int rank;
  double seconds;  // time since the workers were started
  std::int64_t time_ns;
};
// The run directory was removed, renamed or replaced. Emitted at most once.
struct RunDirectoryRemoved {
  std::string path;
  std::int64_t time_ns;
};
struct RunEnded {
  int exit_code;
  std::string why;
  int restarts_used;
  std::int64_t time_ns;
  double seconds = -1;  // time since the start of the run on a steady clock; below 0: unknown
};

using RunEvent =
    std::variant<RunStarted, RoundStarted, NodesChanged, CutOff, WorkerStarted, WorkerReported, WorkerEnded, WorkerContinued,
                 Straggler, RoundFailed, Regrouped, RegroupFailed, StandbyWaits, StandbyEnded, StopRequested, StopIsSlow,
                 WorkersLeft, LeftoversFound, HelperIgnored, InputWasRead, FirstOutput, RunDirectoryRemoved, RunEnded>;

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on(const RunEvent& event) = 0;
};

}  // namespace ddprun
