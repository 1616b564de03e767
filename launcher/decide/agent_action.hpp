// Actions of an agent, as values. AgentState returns them (agent_state.hpp), and the shell carries them out in order
// (launcher/agent/agent_shell.hpp). Ranks are local.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "launcher/decide/agent_event.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

namespace agent_action {
struct StartRound {
  int round = 0;
  int restart_count = 0;         // restarts of this invocation so far
  RestartFacts facts = {};       // why the job was restarted; a member gets them with its release
  std::vector<int> spares = {};  // scripts only: numbers of the spare interpreters that become the first local ranks
};
// Starts the next round on a member whose workers were held. A StartWorker follows for each missing rank.
struct ContinueRound {
  int round = 0;
  int restart_count = 0;
};
// Starts a new process for one rank, while the processes of the other ranks stay.
struct StartWorker {
  int rank = 0;
  int round = 0;
  int restart_count = 0;
  RestartFacts facts = {};  // the same as in StartRound
};
// A standby, which may still be loading, takes the rank of a lost worker.
struct TakeOver {
  int standby = 0;  // the standby's number
  int rank = 0;
  int round = 0;
  int restart_count = 0;
};
struct StartStandby {
  int number = 0;
};
// Sends SIGKILL to all waiting standbys. They hold no state.
struct DismissStandbys {};
struct Tell {  // sends over the worker channel; skips ranks that have ended or have no channel
  std::vector<int> ranks;
  channel::FromAgent message;
};
struct SendSignal {  // to the process groups of these workers
  std::vector<int> ranks;
  int signal = 0;
};
// Ends the processes that the round has left behind, by the rules of launcher/leftovers/sweep_state.hpp. The event RoundSwept
// is the answer. A later order replaces an earlier one.
struct Sweep {
  enum class How {
    kKill,  // SIGKILL now
    kStop,  // the job is being stopped: leftovers have `timeout` to end
    kEnd,   // the round failed: leftovers have a grace period, then SIGTERM, and SIGKILL `timeout` later
    kDone,  // all workers exited with 0: as kEnd, but leftovers that work for the job are awaited first
  } how = How::kKill;
  bool next_round = false;  // another round follows: it waits only for leftovers that hold its resources
  std::chrono::milliseconds timeout{0};
};
struct SetTimer {
  AgentTimer timer{};
  std::chrono::milliseconds after{};
};
struct CancelTimer {
  AgentTimer timer{};
};
struct Emit {
  RunEvent event;
};
// ---- of a member, for the coordinator ----

// A worker has failed. Sent immediately, and again if another failure turns out to be the first cause.
struct ReportFailure {
  Failure failure;
  FailedRound record;
  bool others_stay = false;  // the state of the other workers is valid
};
// All processes of the round have ended, or wait for the next round. kDone: all workers exited with code 0.
struct ReportRoundOver {
  enum class How { kDone, kSaved, kEnded } how = How::kEnded;
  std::optional<int> leaves_with{};  // exit code of this node; set if it leaves the job
  bool holds = false;                // a stop came before the round's group had formed: the workers wait and keep their state
};
struct ReportSignal {
  int signal = 0;
  bool saves = false;  // workers that can save but cannot be held save before this node leaves the others
};
// Answer to SaveOrdered: the largest number of steps that a worker of this node has started. -1: no worker will start another
// step.
struct ReportSteps {
  std::int64_t started = -1;
};
struct Finish {
  int exit_code = 0;
  bool abandon = false;  // a process that cannot be killed remains: don't wait for it
};
}  // namespace agent_action

using AgentAction =
    std::variant<agent_action::StartRound, agent_action::ContinueRound, agent_action::StartWorker, agent_action::TakeOver,
                 agent_action::StartStandby, agent_action::DismissStandbys, agent_action::Tell, agent_action::SendSignal,
                 agent_action::Sweep, agent_action::SetTimer, agent_action::CancelTimer, agent_action::Emit,
                 agent_action::ReportFailure, agent_action::ReportRoundOver, agent_action::ReportSignal,
                 agent_action::ReportSteps, agent_action::Finish>;

}  // namespace ddprun
