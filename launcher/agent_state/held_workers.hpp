// The held workers of one node in a multi-node job. After the loss of another worker, they have left their process group. They
// keep their state and wait for the next round. The agent has already reported to the coordinator that the round has ended on
// this node. AgentState decides when workers are held. The code is pure: no I/O, no clock.
//
// The coordinator's message RoundReleased starts the next round and contains the new ranks. The agent then starts the missing
// workers, and all form a new group. The wait has no time limit, because the coordinator or its successor sends either this
// message or the end of the job. If no round can use the state, the workers are dismissed, which means stopped. A RoundReleased
// that arrives while they are exiting is handled after their exit.
//
//     running -> holding -- RoundReleased --> running, regrouping
//                holding -- JobEnded or HeldDismissed --> stopping -> sweeping -> idle
#pragma once

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/agent_state/agent_action.hpp"

namespace ddprun {

class HeldWorkers {
 public:
  explicit HeldWorkers(AgentTurn& turn) : turn_(turn) {}

  // If `for_stop` is true, a stop arrived during a regroup, and these workers wait for an order to save.
  void hold(std::vector<int> ranks, bool for_stop) {
    since_ = turn_.now.steady;
    turn_.act(agent_action::SendMessage{std::move(ranks), channel::Hold{}});
    report_round_over(for_stop);
  }
  std::chrono::steady_clock::time_point since() const { return since_; }

  // Call this when the held workers are being stopped, because no round will use their state.
  void dismiss() { dismissed_ = true; }
  bool are_dismissed() const { return dismissed_; }
  // If dismissed workers are still exiting, stores the event and returns true. The round must then not start yet.
  bool delay(const agent_event::RoundReleased& event) {
    if (dismissed_) next_release_ = event;
    return dismissed_;
  }
  // Call this when the coordinator has ended the round of the stored RoundReleased event. Reports the end of the round on this
  // node, although no worker ran in it.
  void refuse_release() {
    if (dismissed_ && std::exchange(next_release_, std::nullopt)) report_round_over();
  }
  // Call this when all workers of this node have exited. Returns true if they were held workers that had been dismissed.
  bool end() { return std::exchange(dismissed_, false); }
  std::optional<agent_event::RoundReleased> take_release() { return std::exchange(next_release_, std::nullopt); }

  void report_round_over(bool holds = false) {
    turn_.act(agent_action::ReportRoundOver{.how = agent_action::ReportRoundOver::How::kEnded, .holds = holds});
  }

 private:
  AgentTurn& turn_;
  std::chrono::steady_clock::time_point since_;
  bool dismissed_ = false;
  std::optional<agent_event::RoundReleased> next_release_;
};

}  // namespace ddprun
