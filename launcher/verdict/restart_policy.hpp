// Whether a failed round is tried again. This is the one place that decides it and that counts restarts. Only the judge of a
// job asks here, on one machine and on many (job_judge.hpp). What it knows: causes that no restart mends, the budget (decision
// 1), rounds without progress (decision 2) and the pause before the next try. Pure.
//
// One rule says what progress is, for the budget, for the same failure again and for the pause. A round made progress if it
// published a checkpoint that is newer than the step it began with, or if its survivors held more (survivors_held_more()). A
// step that a rank has only reported is no progress: that rank may have been the only one to hold it.
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

// What --restart-policy can change (restart_policy_file.hpp).
struct RestartRules {
  // How many of the job's restarts may be for that cause since the budget was last full; nothing: the cause's default, which is
  // all or none.
  std::array<std::optional<int>, kCauses> of_cause{};
  // The job ends after that many rounds in a row with the same failure at the same step and without progress. At most
  // kMostSameFailures; 0: never.
  int same_failure_rounds = 2;
  // From the second crash within `instant` of the round's start on, each restart waits for a pause that doubles.
  std::chrono::milliseconds instant{1000};
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause{30000};
};

struct RestartLimits {
  int max_restarts = 0;
  bool refill_by_progress = false;  // a round that made progress refills the budget
  RestartRules rules{};
  // A worker that exits with kPreempted has saved, as ddptrain's do. A script may exit with any code.
  bool preempted_has_saved = false;
};

// What happens after the failed round, and what is counted then.
rendezvous::Verdict decide_restart(const FailedRound& failed, const rendezvous::Budget& before, const RestartLimits& limits);

// `round` began with more than any of the rounds before it had begun with or published. So workers had survived the round
// before, and agreed at the regroup to continue from a newer step. Work that was lost and done again does not count. `before`:
// oldest first. False where no earlier round is known to have begun.
bool survivors_held_more(std::span<const FailedRound> before, const FailedRound& round);

// No restart is tried after such a failure, whatever the budget.
bool is_hopeless(Cause cause, const RestartRules& rules);

// Whether the next round needs less memory: such a restart uses no budget.
bool is_free(const FailedRound& round);

// Whether a restart can ever help against such a failure, be it only when the policy's file asks for it.
bool may_be_restarted(Cause cause);

// A text for people with the differences from the default; empty when there is none.
std::string describe(const RestartRules& rules);

// What a restarted program may want to know.
struct RestartFacts {
  std::string cause{};    // of the newest failed round; empty: no round has failed
  int out_of_memory = 0;  // rounds that ran out of memory since the budget was last full
  bool operator==(const RestartFacts&) const = default;
};
RestartFacts facts_of(const RestartHistory& history);

// Whether the worker or the kernel said that memory ran out; a suspicion does not count.
bool is_out_of_memory(Cause cause);

}  // namespace ddprun
