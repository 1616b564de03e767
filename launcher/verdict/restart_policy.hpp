// Whether a failed round is tried again. This is the one place that decides it and that counts restarts: the agent of one
// machine asks here (launcher/decide/agent_state.cpp), and the coordinator of many (job_judge.hpp). What it knows: causes that
// no restart mends, the budget (decision 1), rounds without progress (decision 2) and the pause before the next try. Pure.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <variant>

#include "common/failure/restart_history.hpp"

namespace ddprun {

inline constexpr int kMostSameFailures = 9;

// What --restart-policy can change (restart_policy_file.hpp).
struct RestartRules {
  // Of the job's restarts, how many may be for that cause since the budget was last full; nothing: what the cause has by
  // itself, all of them or none.
  std::array<std::optional<int>, kCauses> of_cause{};
  // So many rounds with the same failure at the same step and without progress end the job, kMostSameFailures at most; 0: none.
  int same_failure_rounds = 2;
  // Crashes within `instant` of their round's start are followed by a pause from the second on, doubled each time.
  std::chrono::milliseconds instant{1000};
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause{30000};
};

struct RestartLimits {
  int max_restarts = 0;
  bool refill_by_progress = false;  // a checkpoint newer than the one the round began with gives the whole budget back
  RestartRules rules{};
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

// Adds the round to the history, and decides what comes of it. Who only wants to know gives a copy.
RestartDecision decide_restart(RestartHistory& history, const FailedRound& failed, const RestartLimits& limits);

// The round after it needs less memory: it costs nothing of the budget.
bool is_free(const FailedRound& round);

// Whether a restart can help against such a failure at all, if only when the policy's file asks for it.
bool may_be_restarted(Cause cause);

// For people: what is different from the default. Empty when nothing is.
std::string describe(const RestartRules& rules);

// What a program that is started anew may want to know.
struct RestartFacts {
  std::string cause{};    // of the newest failed round; empty: none has failed
  int out_of_memory = 0;  // rounds that failed for want of memory since the budget was last full
  bool operator==(const RestartFacts&) const = default;
};
RestartFacts facts_of(const RestartHistory& history);

// For want of memory, as the worker or the kernel said; a suspicion is none.
bool is_out_of_memory(Cause cause);

}  // namespace ddprun
