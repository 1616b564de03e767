// The events of an agent, as values. The agent's shell creates them from exits, messages, signals and timers. AgentState
// (agent_state.hpp) handles them. Ranks are local.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "launcher/diagnosis/oom_verdict.hpp"
#include "launcher/events/error_file.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/hang/hang_verdict.hpp"

namespace ddprun {

enum class AgentTimer {
  kSave,     // Saving took too long: stop the workers without saving.
  kKill,     // Stopping took too long: send SIGKILL.
  kPause,    // The pause before the next round has ended.
  kRegroup,  // The regroup after a lost worker took too long: stop all workers and start them again.
  kReplace,  // The pause before lost workers are replaced has ended.
  kSpares,   // Spare interpreters of a script may start now.
};

namespace agent_event {
struct Begin {};
struct WorkerExited {
  int rank = 0;
  std::int64_t pid = 0;
  ExitStatus status;
  std::int64_t time_ns = 0;
  std::optional<ErrorFile> error_file{};  // error file that the worker wrote when it failed
  OomVerdict memory{};
  // Stderr line with which a script reported a failed memory allocation (oom_verdict.hpp); empty if none.
  std::string out_of_memory{};
  std::string exception{};  // last exception that a script wrote to stderr (last_exception.hpp); empty if none
  // Seconds since the coordinator's last answer. Set if the guardian killed the worker because the worker lease had expired.
  std::optional<double> unanswered_s{};
};
// The guardian could not execute the worker's program or could not create a process for it.
struct SpawnFailed {
  int rank = 0;
  int error = 0;  // the errno value
  std::string message;
  std::int64_t time_ns = 0;
};
struct WorkerMessageReceived {
  int rank = 0;
  channel::FromWorker message;
};
struct SignalArrived {
  int signal = 0;
};
// A torch file timer that a worker had set has expired (file_timer_server.hpp).
struct TimerExpired {
  int rank = 0;
  int signal = 0;  // signal that the worker has requested for the expiry
  std::string message;
};
// The workers make no progress. Each finding describes one worker's position, and whether that worker causes the hang.
struct HangFound {
  std::vector<HangFinding> findings;
};
// A worker has been in uninterruptible sleep longer than allowed, or still exists long after SIGKILL.
struct WorkerStuck {
  int rank = 0;
  std::int64_t pid = 0;
  std::string message;
};
// A standby process has finished loading and waits for a rank. Numbers of standbys are larger than all local ranks.
struct StandbyReady {
  int number = 0;
};
// A standby process exited while it waited, or could not be started.
struct StandbyGone {
  int number = 0;
  std::int64_t pid = 0;
  std::optional<ExitStatus> status{};
  std::string message{};
  std::int64_t time_ns = 0;
  bool permanent = false;  // true: no standby can be started, for example because a file that each of them loads is missing
};
// A script has printed its first output in this round, so it has probably finished its imports.
struct ScriptPrinted {};
// The spare interpreter that became the worker of this rank does not answer, so the shell kills it.
struct SpareUnresponsive {
  int rank = 0;
};
struct TimerFired {
  AgentTimer timer{};
};
// The agent itself has failed: a check (common/base/check.hpp), a system call or a library. The agent's state may be wrong, so
// the job ends as soon as the workers have saved or stopped.
struct AgentFailed {
  int exit_code = 0;
  std::string why;
  std::vector<int> running;  // local ranks of workers whose processes are running
};
// The round has ended completely: no worker runs, all output pipes are closed, and the agent need not wait for any leftover
// process.
struct RoundSwept {};

// ---- events from the coordinator, only in a multi-node job ----

// The coordinator has started the next round, and this node takes part in it.
struct RoundReleased {
  int round = 0;
  int restart_count = 0;
  int rank_offset = 0;  // the global rank of this node's first worker
  int world_size = 1;   // number of workers on all nodes
  int group_rank = 0;
  int nodes = 1;
  int first_number = 0;  // messages show this round as first_number + round
};
// The coordinator orders this node to end the round.
struct StopOrdered {
  bool immediately = false;        // true: the workers are killed with SIGKILL
  std::string why;                 // reason that messages show to users
  std::optional<Failure> failure;  // set if the reason is a failed worker of another node
  // Seconds without an answer from the coordinator. Set if the lease has expired, as in WorkerExited.
  std::optional<double> unanswered_s{};
  bool hold = false;  // true: workers that can keep their state wait for the next round instead of stopping
};
// No round can use the state of this node's held workers, so they must stop. (Held workers keep their state and wait for the
// next round.)
struct HeldDismissed {
  std::string why;
};
// A signal ends the job: the workers agree on a step and save. If `held` is true, no round follows, so only the held workers
// of this node save their state.
struct SaveOrdered {
  int signal = 0;
  bool held = false;
};
struct StepAgreed {
  std::int64_t step = 0;
};
// The coordinator has ended the job. The agent first stops the held workers of this node.
struct JobEnded {
  int exit_code = 0;
  std::string why;
};
}  // namespace agent_event

using AgentEvent =
    std::variant<agent_event::Begin, agent_event::WorkerExited, agent_event::SpawnFailed, agent_event::WorkerMessageReceived,
                 agent_event::SignalArrived, agent_event::TimerExpired, agent_event::HangFound, agent_event::WorkerStuck,
                 agent_event::StandbyReady, agent_event::StandbyGone, agent_event::ScriptPrinted,
                 agent_event::SpareUnresponsive, agent_event::TimerFired, agent_event::AgentFailed, agent_event::RoundSwept,
                 agent_event::RoundReleased, agent_event::StopOrdered, agent_event::HeldDismissed, agent_event::SaveOrdered,
                 agent_event::StepAgreed, agent_event::JobEnded>;

}  // namespace ddprun
