// What an agent has to do, as values: AgentState says it (agent_state.hpp), the shell carries it out in this order
// (launcher/agent/agent_shell.hpp). Ranks are local ones.
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
  int restart_count = 0;    // of this invocation
  RestartFacts facts = {};  // why there was a restart; of a member, its release says that
};
// The next round of a member whose workers have waited for it; StartWorker follows for each that is missing.
struct ContinueRound {
  int round = 0;
  int restart_count = 0;
};
// In the place of a lost worker, beside those that stay.
struct StartWorker {
  int rank = 0;
  int round = 0;
  int restart_count = 0;
};
// The same by a standby, which may still be loading.
struct TakeOver {
  int standby = 0;  // its number
  int rank = 0;
  int round = 0;
  int restart_count = 0;
};
struct StartStandby {
  int number = 0;
};
// SIGKILL to all that wait: they hold nothing.
struct DismissStandbys {};
struct Tell {  // over the channel; ranks that have none or are gone are skipped
  std::vector<int> ranks;
  channel::FromAgent message;
};
struct SendSignal {  // to the process groups of these workers
  std::vector<int> ranks;
  int signal = 0;
};
// Kill what the round left behind and answer with RoundSwept. Patient: only SIGTERM to those that have not had a signal yet,
// and wait; an impatient one may follow.
struct Sweep {
  bool patient = false;
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

// A worker failed; said at once, and once more if another one turns out to be the first cause.
struct ReportFailure {
  Failure failure;
  FailedRound record;
  bool others_stay = false;  // the state of the other workers is sound
};
// Everything of the round is gone, or waits for the next one. Done: all workers ended well.
struct ReportRoundOver {
  enum class How { kDone, kSaved, kEnded } how = How::kEnded;
  std::optional<int> leaves_with{};  // this node is of no more use: its own exit code
};
struct ReportSignal {
  int signal = 0;
  bool saves = false;  // workers that can save and cannot be held: they save before this node leaves the others
};
// Answer to SaveOrdered: the most steps that a worker here has started; -1: none will start any more.
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
