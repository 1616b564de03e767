#include "tests/trainer/commit/regroup_actions.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::trainer::simulation {

std::string name_of(RegroupAction::Kind kind) {
  static constexpr const char* kNames[] = {"send values", "receive values", "local", "prepare",       "send",
                                           "receive",     "finish",         "load",  "enter barrier", "leave barrier"};
  return kNames[static_cast<int>(kind)];
}

std::deque<RegroupAction> regroup_actions(const CommitDecision& decision, int rank, Mistake mistake) {
  using Kind = RegroupAction::Kind;
  const auto listed = [&](const std::vector<int>& ranks) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
  if (decision.outcome == CommitOutcome::kCheckpoint) {
    return {{.kind = Kind::kLoad}, {.kind = Kind::kEnterBarrier}, {.kind = Kind::kLeaveBarrier}};
  }
  std::deque<RegroupAction> actions;
  if (rank == decision.values_from) {
    for (const int to : decision.values_to) actions.push_back({.kind = Kind::kSendValues, .peer = to});
  }
  if (listed(decision.values_to)) actions.push_back({.kind = Kind::kReceiveValues, .peer = decision.values_from});
  std::deque<RegroupAction> pieces;
  for (const StateTransfer& one : decision.transfers) {
    if (one.from == rank) pieces.push_back({.kind = Kind::kSend, .peer = one.to, .transfer = one});
    if (one.to == rank) pieces.push_back({.kind = Kind::kReceive, .peer = one.from, .transfer = one});
  }
  const bool local_last = mistake == Mistake::kSendsBeforeCompleting && listed(decision.complete);
  if (!local_last) actions.push_back({.kind = Kind::kLocal});
  actions.push_back({.kind = Kind::kPrepare});
  actions.insert(actions.end(), pieces.begin(), pieces.end());
  if (local_last) actions.push_back({.kind = Kind::kLocal});
  actions.push_back({.kind = Kind::kFinish});
  if (mistake == Mistake::kReportsReceivedTooEarly && pieces.size() > 1) {
    std::swap(actions[actions.size() - 1], actions[actions.size() - 2]);
  }
  actions.push_back({.kind = Kind::kEnterBarrier});
  actions.push_back({.kind = Kind::kLeaveBarrier});
  return actions;
}

}  // namespace ddprun::trainer::simulation
