// What an agent must do, as values: AgentState returns them (agent_state.hpp), the shell carries them out in that order
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
  int restart_count = 0;         // of this invocation
  RestartFacts facts = {};       // why the job was restarted; a member gets them with its release
  std::vector<int> spares = {};  // of a script: these spare interpreters become the workers of the first local ranks
};
// The next round of a member whose workers have waited for it. StartWorker follows for each worker that is missing.
struct ContinueRound {
  int round = 0;
  int restart_count = 0;
};
// Starts a worker in the place of a lost one, while the others stay.
struct StartWorker {
  int rank = 0;
  int round = 0;
  int restart_count = 0;
  RestartFacts facts = {};  // as of StartRound
};
// Fills the place by a standby, which may still be loading.
struct TakeOver {
  int standby = 0;  // the standby's number
  int rank = 0;
  int round = 0;
  int restart_count = 0;
};
struct StartStandby {
  int number = 0;
};
// SIGKILL to all waiting standbys: they hold no state.
struct DismissStandbys {};
struct Tell {  // over the channel; ranks that have none or are gone are skipped
  std::vector<int> ranks;
  channel::FromAgent message;
};
struct SendSignal {  // to the process groups of these workers
  std::vector<int> ranks;
  int signal = 0;
};
// End what the round has left behind, and answer with RoundSwept. The rules are those of launcher/leftovers/sweep_state.hpp. A
// later order replaces an earlier one.
struct Sweep {
  enum class How {
    kKill,  // SIGKILL now
    kStop,  // the job is being stopped: leftovers have `timeout` to end
    kEnd,   // the round failed: they have a grace period, and `timeout` after SIGTERM
    kDone,  // all workers exited with 0: as kEnd, and leftovers that work for the job are waited for
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

// A worker has failed. Reported at once, and once more if another failure turns out to be the first cause.
struct ReportFailure {
  Failure failure;
  FailedRound record;
  bool others_stay = false;  // the state of the other workers is valid
};
// All processes of the round are gone, or wait for the next round. kDone: all workers exited with code 0.
struct ReportRoundOver {
  enum class How { kDone, kSaved, kEnded } how = How::kEnded;
  std::optional<int> leaves_with{};  // set if this node can take part no more: its exit code
  bool holds = false;                // a stop came before the round's group had formed: the workers wait and keep their state
};
struct ReportSignal {
  int signal = 0;
  bool saves = false;  // workers that can save and cannot be held save before this node leaves the others
};
// Answer to SaveOrdered: the most steps that a worker of this node has started; -1: no worker will start another step.
struct ReportSteps {
  std::int64_t started = -1;
};
struct Finish {
  int exit_code = 0;
  bool abandon = false;  // a process that cannot be killed is left: don't wait for it
};
}  // namespace agent_action

using AgentAction =
    std::variant<agent_action::StartRound, agent_action::ContinueRound, agent_action::StartWorker, agent_action::TakeOver,
                 agent_action::StartStandby, agent_action::DismissStandbys, agent_action::Tell, agent_action::SendSignal,
                 agent_action::Sweep, agent_action::SetTimer, agent_action::CancelTimer, agent_action::Emit,
                 agent_action::ReportFailure, agent_action::ReportRoundOver, agent_action::ReportSignal,
                 agent_action::ReportSteps, agent_action::Finish>;

}  // namespace ddprun
