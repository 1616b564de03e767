// Whether a failed round is tried again: a pure function of the rounds that failed so far. agent_state.cpp asks it once a round
// is over and everything of it is gone. What it knows: causes that no restart mends, the budget (decision 1), rounds
// without progress (decision 2) and the pause before the next try.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "launcher/events/run_event.hpp"

namespace ddprun {

inline constexpr std::size_t kCauses = static_cast<std::size_t>(kLastCause) + 1;

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

// One failed round as the policy sees it. Steps are -1 where there are none.
struct FailedRound {
  Cause cause = Cause::kExitCode;  // of the first cause
  int rank = -1;
  ExitStatus status;                                        // of the first cause's worker
  std::int64_t step = -1;                                   // last one the rank reported; -1: it reports none
  std::int64_t resumed_from = -1;                           // newest checkpoint when the round began
  std::int64_t newest_checkpoint = -1;                      // newest one when it ended
  std::chrono::nanoseconds lasted{};                        // from its start to the first cause
  std::uint16_t memory_asked = 0;                           // out of memory: memory_asked_in() of its message
  channel::Shrink shrink = channel::Shrink::kNothingKnown;  // out of memory: whether the next round needs less
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
// Restarts since the budget was last full, without the one that is asked for.
struct RestartsUsed {
  int all = 0;
  int for_cause = 0;  // that of the last round
};
// The same where only the last rounds are known, at least rules.same_failure_rounds of them.
RestartDecision decide_restart(std::span<const FailedRound> history, const RestartLimits& limits, const RestartsUsed& used);

// The round after it needs less memory: it costs nothing of the budget.
bool is_free(const FailedRound& round);

// Whether a restart can help against such a failure at all, if only when the policy's file asks for it.
bool may_be_restarted(Cause cause);

// For people: what is different from the default. Empty when nothing is.
std::string describe(const RestartRules& rules);

// What a program that is started anew may want to know.
struct RestartFacts {
  std::string cause;      // of the newest failed round; empty: none has failed
  int out_of_memory = 0;  // rounds that failed for want of memory, as far back as the history goes
  bool operator==(const RestartFacts&) const = default;
};
RestartFacts facts_of(std::span<const FailedRound> history);

// For want of memory, as the worker or the kernel said; a suspicion is none.
bool is_out_of_memory(Cause cause);

// It published a checkpoint newer than the one it began with.
bool made_progress(const FailedRound& round);

}  // namespace ddprun
