// The actions of an agent, as values. AgentState (agent_state.hpp) returns them, and the agent's shell
// (launcher/agent/agent_shell.hpp) carries them out in order. Ranks are local.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "launcher/agent_state/agent_event.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/restart_policy/restart_policy.hpp"

namespace ddprun {

namespace agent_action {
struct StartRound {
  int round = 0;
  int restart_count = 0;         // number of restarts since ddprun was started
  RestartFacts facts = {};       // why the job was restarted; in a multi-node job the coordinator sends these facts
  std::vector<int> spares = {};  // scripts only: numbers of the spare interpreters that become the workers of ranks 0, 1, ...
};
// Starts the next round on a node whose surviving workers have kept their state (see Hold). A StartWorker follows for each
// rank without a worker.
struct ContinueRound {
  int round = 0;
  int restart_count = 0;
};
// Starts a new process for one rank. The processes of the other ranks keep running.
struct StartWorker {
  int rank = 0;
  int round = 0;
  int restart_count = 0;
  RestartFacts facts = {};  // why the job was restarted
};
// Gives the rank of a lost worker to a standby process, which may still be loading.
struct TakeOver {
  int standby = 0;  // the standby's number
  int rank = 0;
  int round = 0;
  int restart_count = 0;
};
struct StartStandby {
  int number = 0;
};
// Sends SIGKILL to all standbys that wait for a rank. They have no training state to save.
struct DismissStandbys {};
struct SendMessage {  // Sends a message over the worker channel. Ranks whose worker has exited or has no channel are skipped.
  std::vector<int> ranks;
  channel::FromAgent message;
};
struct SendSignal {  // sends a signal to the process groups of these workers
  std::vector<int> ranks;
  int signal = 0;
};
// Ends the processes that the workers of a round left behind, as sweep_state.hpp describes. The event RoundSwept reports the
// end. A later Sweep replaces an earlier one.
struct Sweep {
  enum class How {
    kKill,  // leftover processes are killed immediately
    kStop,  // the job is being stopped: processes that still run after `timeout` are killed
    kEnd,   // the round failed: leftover processes get some time, then SIGTERM, and SIGKILL `timeout` later
    kDone,  // all workers exited with 0: like kEnd, but the agent first waits for leftovers that still work for the job
  } how = How::kKill;
  std::chrono::milliseconds timeout{0};
  // true: another round follows. The sweep then waits only for leftovers that hold resources which this round needs.
  bool next_round = false;
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
// ---- from a member to the coordinator ----

// Reports that a worker has failed. This action is emitted for the first failure of a round, and again if the agent later
// finds a different first cause.
struct ReportFailure {
  Failure failure;
  FailedRound record;
  bool others_stay = false;  // true: the state of the other workers is valid, so they can continue with it
};
// Reports that all workers of the round on this node have exited or are held. kDone: all exited with code 0.
struct ReportRoundOver {
  enum class How { kDone, kSaved, kEnded } how = How::kEnded;
  // Set only if this node leaves the job because its device has failed. The value is the exit code of the node.
  std::optional<int> leaves_with{};
  bool holds = false;  // true: a stop interrupted live recovery, and this node has held workers
};
struct ReportSignal {
  int signal = 0;
  // true: this node's workers can save but cannot wait for another round with their state, so they save before they end
  bool saves = false;
};
// Reply to SaveOrdered: the largest number of steps that any worker of this node has started. -1: no worker will start another
// step.
struct ReportSteps {
  std::int64_t started = -1;
};
struct Finish {
  int exit_code = 0;
  bool abandon = false;  // true: a process that cannot be killed remains, so the agent exits without waiting for it
};
}  // namespace agent_action

using AgentAction =
    std::variant<agent_action::StartRound, agent_action::ContinueRound, agent_action::StartWorker, agent_action::TakeOver,
                 agent_action::StartStandby, agent_action::DismissStandbys, agent_action::SendMessage, agent_action::SendSignal,
                 agent_action::Sweep, agent_action::SetTimer, agent_action::CancelTimer, agent_action::Emit,
                 agent_action::ReportFailure, agent_action::ReportRoundOver, agent_action::ReportSignal,
                 agent_action::ReportSteps, agent_action::Finish>;

struct Instant {
  std::chrono::steady_clock::time_point steady;
  std::int64_t realtime_ns = 0;
};

// The time of the event that is being handled, and the resulting actions in order. The classes of the state machine share one
// AgentTurn and append their actions to it.
struct AgentTurn {
  Instant now;
  std::vector<AgentAction> actions;

  template <class Action>
  void act(Action action) {
    actions.emplace_back(std::move(action));
  }
  template <class Event>
  void emit(Event event) {
    act(agent_action::Emit{RunEvent{std::move(event)}});
  }
};

}  // namespace ddprun
