// Events of an agent, as values. The shell makes them from exits, messages, signals and timers; AgentState handles them
// (agent_state.hpp). Ranks are local.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "launcher/events/error_file.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/verdict/hang_verdict.hpp"
#include "launcher/verdict/oom_verdict.hpp"

namespace ddprun {

enum class AgentTimer {
  kSave,     // saving has taken too long: stop without saving
  kKill,     // stopping has taken too long: SIGKILL
  kPause,    // the pause before the next round is over
  kRegroup,  // regrouping has taken too long: stop, and start all workers again
  kReplace,  // the pause before the replacements of lost workers start is over
  kSpares,   // spare interpreters of a script may be started now
};

namespace agent_event {
struct Begin {};
struct WorkerExited {
  int rank = 0;
  std::int64_t pid = 0;
  ExitStatus status;
  std::int64_t time_ns = 0;
  std::optional<ErrorFile> error_file{};  // error file that a failed worker wrote
  OomVerdict memory{};
  std::string out_of_memory{};  // stderr line in which a script reports a refused allocation (oom_verdict.hpp); else empty
  std::string exception{};      // the last exception that a script wrote to stderr (last_exception.hpp); else empty
  // Set if the guardian killed the worker: seconds for which no coordinator had extended this member's grant.
  std::optional<double> unanswered_s{};
};
// The worker's program could not be executed, or no process could be made for it.
struct SpawnFailed {
  int rank = 0;
  int error = 0;  // errno
  std::string message;
  std::int64_t time_ns = 0;
};
struct WorkerSaid {
  int rank = 0;
  channel::FromWorker message;
};
struct SignalArrived {
  int signal = 0;
};
// A timer that a worker had set has expired (file_timer_server.hpp).
struct TimerExpired {
  int rank = 0;
  int signal = 0;  // the signal that the worker requested with the timer
  std::string message;
};
// The round makes no progress. The findings name the ranks to blame and the position of each worker.
struct HangFound {
  std::vector<HangFinding> findings;
};
// A worker has been in uninterruptible sleep for the allowed time.
struct WorkerStuck {
  int rank = 0;
  std::int64_t pid = 0;
  std::string message;
};
// A standby has loaded and waits for a rank. The agent numbers standbys, beginning above the local ranks.
struct StandbyReady {
  int number = 0;
};
// A standby ended while it waited, or could not be started.
struct StandbyGone {
  int number = 0;
  std::int64_t pid = 0;
  std::optional<ExitStatus> status{};
  std::string message{};
  std::int64_t time_ns = 0;
  bool for_good = false;  // no standby can be started at all, for example because a file to load is missing
};
// A script has printed its first output in this round, so it has most likely loaded its libraries.
struct ScriptSpeaks {};
// The worker of this rank was a spare interpreter, does not answer, and is being killed.
struct SpareUnresponsive {
  int rank = 0;
};
struct TimerFired {
  AgentTimer timer{};
};
// Something in this agent has failed: a check (common/base/check.hpp), the system, a library. Its state may be wrong, so the
// job ends as soon as the workers have saved or stopped.
struct AgentFailed {
  int exit_code = 0;
  std::string why;
  std::vector<int> running;  // ranks whose processes run
};
// The round has ended completely: no worker runs, no pipe is open, and no leftover process must be awaited.
struct RoundSwept {};

// ---- to a member, from the coordinator ----

// The next round starts, and this node is a member of it.
struct RoundReleased {
  int round = 0;
  int restart_count = 0;
  int rank_offset = 0;  // the global rank of this node's first worker
  int world_size = 1;   // number of workers in the whole job
  int group_rank = 0;
  int nodes = 1;
  int first_number = 0;  // added to `round`, it gives the number that messages show
};
// The round must end on this node.
struct StopOrdered {
  bool at_once = false;                  // stop with SIGKILL
  std::string why;                       // for messages
  std::optional<Failure> failure;        // set if a worker of another node is the reason
  std::optional<double> unanswered_s{};  // as in WorkerExited: the coordinator does not answer, so the workers must stop
  bool hold = false;                     // workers that can keep their state may wait for the next round
};
// The state of the held workers must not be kept: stop them.
struct HeldDismissed {
  std::string why;
};
// A signal ends the job: the workers agree on a step and save. With `held` the job ends without another round. Only the held
// workers of this node save their state, and no other node saves.
struct SaveOrdered {
  int signal = 0;
  bool held = false;  // only the waiting workers save
};
struct StepAgreed {
  std::int64_t step = 0;
};
// The job has ended, and so have all workers.
struct JobEnded {
  int exit_code = 0;
  std::string why;
};
}  // namespace agent_event

using AgentEvent =
    std::variant<agent_event::Begin, agent_event::WorkerExited, agent_event::SpawnFailed, agent_event::WorkerSaid,
                 agent_event::SignalArrived, agent_event::TimerExpired, agent_event::HangFound, agent_event::WorkerStuck,
                 agent_event::StandbyReady, agent_event::StandbyGone, agent_event::ScriptSpeaks, agent_event::SpareUnresponsive,
                 agent_event::TimerFired, agent_event::AgentFailed, agent_event::RoundSwept, agent_event::RoundReleased,
                 agent_event::StopOrdered, agent_event::HeldDismissed, agent_event::SaveOrdered, agent_event::StepAgreed,
                 agent_event::JobEnded>;

}  // namespace ddprun
