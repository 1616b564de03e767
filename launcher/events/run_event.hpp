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
  std::string message;                   // typed error's, the error file's, or errno text of a spawn
  std::string call_stack;                // Python's, of the error file
  std::string error_file;                // its path; empty when there is none
  std::vector<std::string> stderr_tail;  // last lines, at most 20 of at most 1 KiB
  std::vector<std::string> evidence{};   // lines: memory's numbers, a hanging rank's stack
  std::string log_path;                  // of stderr.log; empty when stderr is in no file
  std::int64_t log_line = 0;             // of stderr_tail's first line in it, from 1; 0: not known
  std::int64_t step = -1;                // last reported by the rank; -1: none
  std::int64_t time_ns = 0;
};

// In a few words: the status where that is the cause, else the message.
std::string how_it_failed(const Failure& failure);

struct RunStarted {
  std::int64_t time_ns;
  int world_size;
};
struct RoundStarted {
  int round;
  int restart_count;
  int world_size;  // of the job
  std::int64_t time_ns;
  int workers_here = 0;  // on this node; 0: all of them
  int group_rank = 0;
  int nodes = 1;
  bool regroup = false;  // only lost workers are started, the others stay
};
// Of a job on many machines: who is here, who has gone, who leads.
struct NodesChanged {
  rendezvous::Notice notice;
  std::int64_t time_ns;
};
// Of a job on many machines: the coordinator did not answer this node, whose workers were ended then, since the other nodes
// may have gone on without it. No failure of a worker; the node looks for the job.
struct CutOff {
  int round;
  double seconds;  // without an answer, when they were ended
  std::int64_t time_ns;
};
inline constexpr const char* kCutOff = "cut_off";  // as a cause in the report
std::string describe(const CutOff& event);
struct WorkerStarted {
  int rank;
  int local_rank;
  std::int64_t pid;
  std::int64_t time_ns;
  bool standby = false;  // it had been waiting as a standby, and begins to be this rank's
};
struct WorkerSpoke {
  int rank;
  channel::FromWorker message;
  std::int64_t time_ns;
};
struct WorkerEnded {
  int rank;
  std::int64_t pid;
  ExitStatus status;
  bool asked_to_stop;
  std::int64_t time_ns;
};
// Decision after a failed round.
struct RoundFailed {
  int round;
  Failure first;
  std::vector<Failure> consequences;
  enum class Decision { kRestart, kRegroup, kGiveUp } decision;
  std::string why;  // "restart 1 of 3", "budget of 3 spent", "usage errors are not restarted"
  std::int64_t time_ns;
};
const char* name_of(RoundFailed::Decision decision);  // "restart", "regroup", "give_up"
// After a loss that was answered with kRegroup: all workers of the new round are together and go on.
struct Regrouped {
  int round;
  std::vector<int> kept;        // ranks whose state survived; empty: the newest checkpoint is what they go on from
  std::vector<int> replaced;    // ranks with a new process
  std::vector<int> by_standby;  // those of them whose process had been waiting
  std::int64_t step;            // finished
  double seconds;               // from the loss
  std::int64_t time_ns;
};
// It did not come to that; the job starts anew from its newest checkpoint.
struct RegroupFailed {
  int round;
  std::string why;
  std::int64_t time_ns;
};
// A standby worker has loaded everything and waits for a rank.
struct StandbyWaits {
  std::int64_t pid;
  std::int64_t time_ns;
};
// It ended while it waited, unasked; the job goes on, and the next one is started.
struct StandbyEnded {
  std::int64_t pid;  // 0: it could not be started
  std::optional<ExitStatus> status;
  std::string message;  // what it reported, or its last line; may be empty
  double next_in_s;
  std::int64_t time_ns;
};
// A signal to the agent.
struct StopRequested {
  int signal;
  enum class Effect { kStops, kNothingNew, kKills } effect;
  std::int64_t time_ns;
};
// Workers were told to stop long ago, and some have not ended. Once a round.
struct StopIsSlow {
  struct Awaited {
    int rank;
    std::int64_t pid;
    std::string look;  // what the kernel says of it (process_look.hpp); empty when it says nothing
  };
  double seconds;
  std::optional<Failure> first;  // why they are being stopped, as far as it is known by now
  std::vector<Awaited> awaited;
  std::int64_t time_ns;
};
std::string describe(const StopIsSlow& event);
// Workers of a script ended with exit code 0 some time ago while others of this node run on, unasked. Once a round.
struct WorkersLeft {
  double seconds;
  std::vector<int> ended;    // ranks, the first of them `seconds` ago
  std::vector<int> running;  // ranks
  std::int64_t time_ns;
};
std::string describe(const WorkersLeft& event);
// What a script's worker says over the channel is not listened to any more: another major version, or no protocol at all. The
// job goes on without.
struct HelperIgnored {
  int rank;
  std::string why;
  std::int64_t time_ns;
};
std::string describe(const HelperIgnored& event);
HelperIgnored no_protocol(int rank, const std::string& error, std::int64_t time_ns);
// Workers are started anew after others have read from the standard input that they share. At each such restart.
struct InputWasRead {
  std::string what;  // that they will not find
  std::int64_t time_ns;
};
// The run directory is not where it was: removed, renamed or replaced. Once.
struct RunDirectoryRemoved {
  std::string path;
  std::int64_t time_ns;
};
struct RunEnded {
  int exit_code;
  std::string why;
  int restarts_used;
  std::int64_t time_ns;
  double seconds = -1;  // since the run started, by a clock that nobody sets; below 0: not known
};

using RunEvent = std::variant<RunStarted, RoundStarted, NodesChanged, CutOff, WorkerStarted, WorkerSpoke, WorkerEnded,
                              RoundFailed, Regrouped, RegroupFailed, StandbyWaits, StandbyEnded, StopRequested, StopIsSlow,
                              WorkersLeft, HelperIgnored, InputWasRead, RunDirectoryRemoved, RunEnded>;

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on(const RunEvent& event) = 0;
};

}  // namespace ddprun
