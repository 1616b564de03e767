// Whether a failed round is tried again: a pure function of the rounds that failed so far. agent_state.cpp asks it once a round
// is over and everything of it is gone. What it knows: causes that no restart mends, the budget (DECISIONS.md 1), rounds
// without progress (DECISIONS.md 2) and the pause before the next try.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "launcher/run_event.hpp"

namespace ddprun {

struct RestartLimits {
  int max_restarts = 0;
  bool refill_by_progress = false;  // a checkpoint newer than the one the round began with gives the whole budget back
};

// One failed round as the policy sees it. Steps are -1 where there are none.
struct FailedRound {
  Cause cause = Cause::kExitCode;  // of the first cause
  int rank = -1;
  ExitStatus status;                    // of the first cause's worker
  std::int64_t step = -1;               // last one the rank reported; -1: it reports none
  std::int64_t resumed_from = -1;       // newest checkpoint when the round began
  std::int64_t newest_checkpoint = -1;  // newest one when it ended
  std::chrono::nanoseconds lasted{};    // from its start to the first cause
};

struct Restart {
  std::chrono::milliseconds delay{};
  std::string why;  // "restart 1 of 3"
};

struct GiveUp {
  int exit_code = 1;
  std::string why;  // "budget of 3 spent"
};

using RestartDecision = std::variant<Restart, GiveUp>;

// `history`: the failed rounds in order, at least one; the decision is about the last.
RestartDecision decide_restart(std::span<const FailedRound> history, const RestartLimits& limits);
// The same where only the last rounds are known, and `used` restarts were counted since the budget was last full.
RestartDecision decide_restart(std::span<const FailedRound> history, const RestartLimits& limits, int used);

// It published a checkpoint newer than the one it began with.
bool made_progress(const FailedRound& round);

}  // namespace ddprun
