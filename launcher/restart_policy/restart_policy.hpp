// Decides whether the job is restarted after a failed round. No other code decides this or counts restarts. Only job_judge.hpp
// calls it, for jobs on one machine and on several. The code is pure: no I/O, no clock.
//
// The problem. A crashed worker often succeeds when it is started again, so restarts save long jobs. But some failures recur at
// every restart. A job that restarts on each of them would waste hours of GPU time and hide the cause.
//
// The idea. Four rules decide whether a restart follows, and when:
// - Some causes are never fixed by a restart, for example a usage error. The job ends immediately.
// - The budget limits the number of restarts (decision 1, docs/internals/decisions/launcher/restart-budget.md).
// - The same failure at the same step in two rounds without progress ends the job (no-progress.md in that folder).
// - Workers that crash within a second of their start are restarted after a pause, which doubles each time.
//
// All of these rules use the same definition of progress. A round made progress if it published a checkpoint that is newer than
// the step from which it started. It also made progress if its survivors held a newer step (survivors_held_more()).
// A step that a rank has only reported is not progress. If that rank alone had finished the step, the step was lost with the
// rank.
//
// Example: a job starts at step 100, saves at step 200 and fails at step 250. The round made progress. With
// `refill_by_progress` this restart is the first one of a full budget. The next round starts at step 200 and fails at step 250
// in the same way, without a new checkpoint. So the rule about repeated failures ends the job with kNoProgress.
//
// The cost: if two random kills hit the same rank at the same step before the job has saved, the job ends early.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "common/failure/restart_history.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun {

inline constexpr int kMaxSameFailures = 9;

// Rules that users can change with --restart-policy (restart_policy_file.hpp).
struct RestartRules {
  // Maximum number of restarts for each cause since the budget was last full. nullopt means the default: the cause may use the
  // whole budget, or the job ends without a restart (is_unrecoverable()).
  std::array<std::optional<int>, kCauses> of_cause{};
  // The job ends after this many rounds in a row with the same failure at the same step and without progress. The maximum is
  // kMaxSameFailures; 0 disables the rule.
  int same_failure_rounds = 2;
  // A round that fails within `instant` of its start is an instant crash. The second and each later instant crash in a row
  // delays the restart. The delay starts at `first_pause` and doubles up to `longest_pause`.
  std::chrono::milliseconds instant{1000};
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause{30000};
};

struct RestartLimits {
  int max_restarts = 0;
  bool refill_by_progress = false;  // true: a round that made progress refills the budget
  RestartRules rules{};
  // True if exit code kPreempted means that the worker has saved its state. This holds for ddptrain's workers. A script may use
  // any exit code for its own purposes, so this does not hold for scripts.
  bool preempted_has_saved = false;
};

// Decides what follows the failed round. `before` is the budget that the job has used so far. `Verdict::after` is the budget
// after this failure.
rendezvous::Verdict decide_restart(const FailedRound& failed, const rendezvous::Budget& before, const RestartLimits& limits);

// Returns true if `round` started from a newer step than any start or checkpoint of the earlier rounds. This proves that
// survivors of the previous round kept their state, and that the regroup resumed from that newer step. Steps that are repeated
// because a worker was lost do not count. `before` contains the earlier rounds, oldest first. Returns false if no earlier round
// has a known start or checkpoint.
bool survivors_held_more(std::span<const FailedRound> before, const FailedRound& round);

// Returns true if the job ends after a failure with this cause, whatever budget is left.
bool is_unrecoverable(Cause cause, const RestartRules& rules);

// Returns true if the next round needs less memory than `round`. The restart then uses no budget.
bool is_free(const FailedRound& round);

// Returns true if a restart after a failure with this cause is possible at all, by default or because the policy file allows
// it.
bool may_be_restarted(Cause cause);

// Lists the differences from the default rules, as text for the user. Returns an empty text if there are none.
std::string describe(const RestartRules& rules);

// The information about earlier failures that a restarted program can read from its environment.
struct RestartFacts {
  std::string cause{};    // cause of the newest failed round; empty if no round has failed
  int out_of_memory = 0;  // rounds that ran out of memory since the budget was last full
  bool operator==(const RestartFacts&) const = default;
};
RestartFacts facts_of(const RestartHistory& history);

// Returns true if the worker or the kernel reported that memory ran out. kSuspectedOutOfMemory is not proven, so it does not
// count.
bool is_out_of_memory(Cause cause);

}  // namespace ddprun
