// What can happen to an agent, as values: the shell makes them of exits, messages, signals and timers, AgentState takes them
// (agent_state.hpp). Ranks are local ones.
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
  kSave,     // saving has taken too long: stop without it
  kKill,     // stopping has taken too long: SIGKILL
  kPause,    // before the next round
  kRegroup,  // regrouping has taken too long: stop and start anew
  kReplace,  // before the lost workers' successors start
};

namespace agent_event {
struct Begin {};
struct WorkerExited {
  int rank = 0;
  std::int64_t pid = 0;
  ExitStatus status;
  std::int64_t time_ns = 0;
  std::optional<ErrorFile> error_file{};  // what it left behind when it ended badly
  OomVerdict memory{};
  std::string out_of_memory{};  // a line of its stderr that says so, of a script (oom_verdict.hpp); else empty
  std::string exception{};      // the last that it told there, of a script (last_exception.hpp); else empty
  // Killed by the guardian, since for so many seconds no coordinator had answered a member that its workers may run on.
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
// A timer that a worker had set itself is overdue (file_timer_server.hpp).
struct TimerExpired {
  int rank = 0;
  int signal = 0;  // the one it asked for
  std::string message;
};
// The round makes no progress: who is to blame, and what every worker is at.
struct HangFound {
  std::vector<HangFinding> findings;
};
// A worker has been in uninterruptible sleep for the allowed time.
struct WorkerStuck {
  int rank = 0;
  std::int64_t pid = 0;
  std::string message;
};
// A standby waits for its rank. Numbers are the agent's, above those of the ranks.
struct StandbyReady {
  int number = 0;
};
// It ended while it waited, or could not be started.
struct StandbyGone {
  int number = 0;
  std::int64_t pid = 0;
  std::optional<ExitStatus> status{};
  std::string message{};
  std::int64_t time_ns = 0;
};
struct TimerFired {
  AgentTimer timer{};
};
// Something in this agent has failed: a check (common/base/check.hpp), the system, a library. Its state may be wrong, so the
// job ends as soon as the workers have saved or stopped.
struct AgentFailed {
  int exit_code = 0;
  std::string why;
  std::vector<int> running;  // ranks whose processes are there
};
// Nothing of the round is left: no worker, no descendant, no open pipe.
struct RoundSwept {};

// ---- to a member, from the coordinator ----

// The next round, which this node is part of.
struct RoundReleased {
  int round = 0;
  int restart_count = 0;
  int rank_offset = 0;  // global rank of the first worker here
  int world_size = 1;   // of the job
  int group_rank = 0;
  int nodes = 1;
  int first_number = 0;  // of round 0, as people count rounds
};
// The round is over.
struct StopOrdered {
  bool at_once = false;                  // SIGKILL
  std::string why;                       // for people
  std::optional<Failure> failure;        // of a worker of another node, when that is why
  std::optional<double> unanswered_s{};  // as of WorkerExited: the coordinator does not answer, and it is over with them
  bool hold = false;                     // workers that can may wait for the next round with their state
};
// The state of those that wait for the next round is not to be kept.
struct HeldDismissed {
  std::string why;
};
// A signal ends the job: the workers agree on a step and save. Or the job ends without another round, and those that wait for
// it save what they hold: nobody else does.
struct SaveOrdered {
  int signal = 0;
  bool held = false;  // those that wait
};
struct StepAgreed {
  std::int64_t step = 0;
};
// The workers are gone, and that is all.
struct JobEnded {
  int exit_code = 0;
  std::string why;
};
}  // namespace agent_event

using AgentEvent =
    std::variant<agent_event::Begin, agent_event::WorkerExited, agent_event::SpawnFailed, agent_event::WorkerSaid,
                 agent_event::SignalArrived, agent_event::TimerExpired, agent_event::HangFound, agent_event::WorkerStuck,
                 agent_event::StandbyReady, agent_event::StandbyGone, agent_event::TimerFired, agent_event::AgentFailed,
                 agent_event::RoundSwept, agent_event::RoundReleased, agent_event::StopOrdered, agent_event::HeldDismissed,
                 agent_event::SaveOrdered, agent_event::StepAgreed, agent_event::JobEnded>;

}  // namespace ddprun
