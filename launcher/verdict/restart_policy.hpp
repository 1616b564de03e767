// Decides whether a failed round is tried again. This is the only place that decides it and counts restarts. Only the judge of
// a job (job_judge.hpp) calls it, on one machine and on many. The decision depends on causes that no restart can fix, the
// budget (decision 1), rounds without progress (decision 2) and the pause before the next try. Pure.
//
// One rule defines progress, for the budget, for repeated failures and for the pause. A round made progress if it published a
// checkpoint that is newer than the step it began with, or if its survivors held more (survivors_held_more()). A step that a
// rank has only reported is not progress, since that rank may have been the only one to hold it.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "common/failure/restart_history.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun {

inline constexpr int kMostSameFailures = 9;

// Rules that --restart-policy can change (restart_policy_file.hpp).
struct RestartRules {
  // Maximum number of restarts for each cause since the budget was last full. nullopt: the cause's default, which is all
  // restarts of the budget, or none.
  std::array<std::optional<int>, kCauses> of_cause{};
  // The job ends after that many rounds in a row with the same failure at the same step and without progress. At most
  // kMostSameFailures; 0: never.
  int same_failure_rounds = 2;
  // A crash within `instant` of the round's start is an instant crash. From the second one in a row on, a pause precedes each
  // restart, and it doubles each time.
  std::chrono::milliseconds instant{1000};
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause{30000};
};

struct RestartLimits {
  int max_restarts = 0;
  bool refill_by_progress = false;  // a round that made progress refills the budget
  RestartRules rules{};
  // True if a worker that exits with kPreempted has saved. That holds for ddptrain's workers; a script may exit with any code.
  bool preempted_has_saved = false;
};

// Returns what happens after the failed round, and the budget after it.
rendezvous::Verdict decide_restart(const FailedRound& failed, const rendezvous::Budget& before, const RestartLimits& limits);

// True if `round` began with a newer step than any earlier round had begun with or published. So workers had survived the
// previous round, and agreed at the regroup to continue from a newer step. Work that was lost and done again does not count.
// `before`: oldest first. False if no earlier round is known to have begun.
bool survivors_held_more(std::span<const FailedRound> before, const FailedRound& round);

// True if no restart is tried after such a failure, whatever the budget is.
bool is_hopeless(Cause cause, const RestartRules& rules);

// True if the next round needs less memory, so that its restart uses no budget.
bool is_free(const FailedRound& round);

// True if a restart can ever help against such a failure, by default or if the policy file asks for it.
bool may_be_restarted(Cause cause);

// Describes the differences from the default rules to the user. Empty if there are none.
std::string describe(const RestartRules& rules);

// Facts about earlier failures, for a restarted program.
struct RestartFacts {
  std::string cause{};    // cause of the newest failed round; empty: no round has failed
  int out_of_memory = 0;  // rounds that ran out of memory since the budget was last full
  bool operator==(const RestartFacts&) const = default;
};
RestartFacts facts_of(const RestartHistory& history);

// True if the worker or the kernel reported that memory ran out. A suspicion does not count.
bool is_out_of_memory(Cause cause);

}  // namespace ddprun
