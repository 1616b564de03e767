// Implementation of restart_policy.hpp. decide() makes the checks, and their order matters: for example, an unrecoverable cause
// is reported even if the budget is spent as well.
#include "launcher/restart_policy/restart_policy.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/exit_code.hpp"
#include "launcher/events/printf_text.hpp"

namespace ddprun {
namespace {

// Returns the exit code of the job: the exit code of the worker whose failure is the first cause (decision 4,
// docs/internals/decisions/launcher/exit-codes.md). Returns kBudgetSpent if that worker's exit status does not reflect the
// failure, for example after a hang.
int exit_code_of(const FailedRound& round) {
  // The agent kills a hanging worker with SIGKILL, so the worker's exit status does not show the hang.
  const int code = round.cause == Cause::kHang ? 0 : round.status.as_exit_code();
  return code != 0 ? code : static_cast<int>(ExitCode::kBudgetSpent);
}

// Returns the message for a cause that no restart can fix; nullptr if a restart may help.
const char* hopeless_reason(Cause cause) {
  switch (cause) {
    case Cause::kUsage:
      return "no restart after a usage error: another start would fail in the same way";
    case Cause::kSpawn:
      return "no restart, since the program cannot be started";
    case Cause::kDiverged:
      return "no restart after divergence: the run would diverge again";
    case Cause::kCheckpoint:
      return "no restart, since a checkpoint cannot be read or saved, and a restart would not fix this";
    case Cause::kStuck:
      return "no restart, since a worker process cannot be killed and still uses its GPU and port: restart the machine if the "
             "process does not end";
    case Cause::kSuperseded:
      return "no restart: another start continues this run";
    case Cause::kDevice:
      return "no restart on a failed GPU: hide it (CUDA_VISIBLE_DEVICES) or reset it";
    case Cause::kExitCode:
    case Cause::kSignal:
    case Cause::kException:
    case Cause::kOutOfMemory:
    case Cause::kLostPeer:
    case Cause::kStopped:
    case Cause::kTimerExpired:
    case Cause::kHostOutOfMemory:
    case Cause::kSuspectedOutOfMemory:
    case Cause::kHang:
    case Cause::kCorruptState:
    case Cause::kLateUsage:
      return nullptr;
  }
  check_failed("unknown cause of a failed round");
}

bool same_failure(const FailedRound& a, const FailedRound& b) {
  // Two out-of-memory failures at the same step count as the same only if they requested the same amount. A different amount
  // shows that the memory usage of the script has changed in between, so a restart may help.
  return a.step >= 0 && a.step == b.step && a.cause == b.cause && a.rank == b.rank && a.status.code == b.status.code &&
         a.status.signal == b.status.signal && (!is_out_of_memory(a.cause) || a.memory_requested == b.memory_requested);
}

// Returns true if round number `round` made progress. For the newest round the result may still change from false to true: the
// start of the next round shows whether survivors held a newer step.
bool made_progress(std::span<const FailedRound> history, std::size_t round) {
  if (history[round].has_newer_checkpoint()) return true;
  return round + 1 < history.size() && survivors_held_more(history.first(round + 1), history[round + 1]);
}

// Returns true if the last `rounds` rounds failed in the same way at the same step, without progress since the first of them.
// The first round itself may have made progress.
bool is_stuck(std::span<const FailedRound> history, int rounds) {
  if (rounds == 0 || history.size() < static_cast<std::size_t>(rounds)) return false;
  for (std::size_t i = history.size() - static_cast<std::size_t>(rounds) + 1; i < history.size(); ++i)
    if (!same_failure(history[i - 1], history[i]) || made_progress(history, i)) return false;
  return true;
}

// Returns true if the last `rounds` rounds failed to allocate the same amount of memory. This applies only to programs that
// report no steps.
bool is_out_of_memory_again(std::span<const FailedRound> history, int rounds) {
  if (rounds == 0 || history.size() < static_cast<std::size_t>(rounds)) return false;
  const auto last = history.last(static_cast<std::size_t>(rounds));
  return std::all_of(last.begin(), last.end(), [&](const FailedRound& round) {
    return is_out_of_memory(round.cause) && round.step < 0 && round.cause == last.back().cause &&
           round.memory_requested == last.back().memory_requested;
  });
}

int count_of(const RestartHistory& history, Cause cause) {
  return history.by_cause[static_cast<std::size_t>(cause)];
}

// Returns the pause before a restart after kLateUsage. This cause means that a resource is missing (a mount, a file server),
// which may become available again. The pause doubles with each such failure in a row.
std::chrono::milliseconds pause_for_missing_resource(std::span<const FailedRound> history, const RestartRules& rules) {
  const auto other =
      std::find_if(history.rbegin(), history.rend(), [](const FailedRound& r) { return r.cause != Cause::kLateUsage; });
  const auto tries = std::min<std::ptrdiff_t>(other - history.rbegin(), 20);
  constexpr int kMissingResourceFactor = 4;
  return tries == 0 ? std::chrono::milliseconds{}
                    : std::min(rules.first_pause * kMissingResourceFactor * (1 << (tries - 1)), rules.longest_pause);
}

// Returns the pause before the next restart. Only restarts after instant crashes (RestartRules::instant) are delayed. A job
// that ran for some time before it failed is restarted immediately, since a pause would only cost time.
std::chrono::milliseconds pause_before_next(std::span<const FailedRound> history, const RestartRules& rules) {
  if (history.back().cause == Cause::kLateUsage) return pause_for_missing_resource(history, rules);
  std::size_t instant_crashes = 0;  // number of instant crashes in a row, up to the newest round
  while (instant_crashes < history.size()) {
    const std::size_t round = history.size() - 1 - instant_crashes;
    if (history[round].lasted >= rules.instant || made_progress(history, round)) break;
    ++instant_crashes;
  }
  if (instant_crashes <= 1) return {};
  const auto doublings = std::min<std::size_t>(instant_crashes - 2, 20);
  return std::min(rules.first_pause * (1 << doublings), rules.longest_pause);
}

std::string counted_restarts(int number) {
  return std::to_string(number) + (number == 1 ? " restart" : " restarts");
}

std::string pause_text(std::chrono::milliseconds time) {
  return printed("%g s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

bool survivors_held_more(std::span<const FailedRound> before, const FailedRound& round) {
  std::int64_t newest = -1;
  for (const FailedRound& earlier : before) newest = std::max({newest, earlier.resumed_from, earlier.newest_checkpoint});
  return newest >= 0 && round.resumed_from > newest;
}

bool is_free(const FailedRound& round) {
  return round.cause == Cause::kOutOfMemory && round.shrink == channel::Shrink::kDone;
}

bool is_out_of_memory(Cause cause) {
  return cause == Cause::kOutOfMemory || cause == Cause::kHostOutOfMemory;
}

RestartFacts facts_of(const RestartHistory& history) {
  if (history.rounds.empty()) return {};
  return {.cause = name_of(history.rounds.back().cause),
          .out_of_memory = count_of(history, Cause::kOutOfMemory) + count_of(history, Cause::kHostOutOfMemory)};
}

bool may_be_restarted(Cause cause) {
  switch (cause) {
    case Cause::kUsage:
    case Cause::kSpawn:
    case Cause::kStuck:
    case Cause::kStopped:
    case Cause::kSuperseded:
      return false;
    case Cause::kExitCode:
    case Cause::kSignal:
    case Cause::kException:
    case Cause::kOutOfMemory:
    case Cause::kLostPeer:
    case Cause::kDiverged:
    case Cause::kCheckpoint:
    case Cause::kTimerExpired:
    case Cause::kHostOutOfMemory:
    case Cause::kSuspectedOutOfMemory:
    case Cause::kHang:
    case Cause::kCorruptState:
    case Cause::kLateUsage:
    case Cause::kDevice:
      return true;
  }
  check_failed("unknown cause of a failure");
}

bool is_unrecoverable(Cause cause, const RestartRules& rules) {
  const bool is_configured = rules.of_cause[static_cast<std::size_t>(cause)].has_value();
  return hopeless_reason(cause) != nullptr && !(is_configured && may_be_restarted(cause));
}

std::string describe(const RestartRules& rules) {
  const RestartRules usual{};
  std::string text;
  const auto add = [&text](const std::string& rule) { text += (text.empty() ? "" : ", ") + rule; };
  for (std::size_t i = 0; i < kCauses; ++i)
    if (rules.of_cause[i]) add(name_of(static_cast<Cause>(i)) + std::string(": ") + counted_restarts(*rules.of_cause[i]));
  if (rules.same_failure_rounds != usual.same_failure_rounds)
    add("same failure: " + (rules.same_failure_rounds == 0 ? "any number" : std::to_string(rules.same_failure_rounds)) +
        " of rounds");
  if (rules.instant != usual.instant) add("crashes within " + pause_text(rules.instant) + " are instant");
  if (rules.first_pause != usual.first_pause || rules.longest_pause != usual.longest_pause)
    add("pause " + pause_text(rules.first_pause) + " to " + pause_text(rules.longest_pause));
  return text;
}

namespace {

rendezvous::Verdict give_up(int exit_code, std::string why) {
  return {.exit_code = exit_code, .why = std::move(why)};
}

rendezvous::Verdict restart_after(std::chrono::milliseconds delay, std::string why) {
  return {.restart = true, .why = std::move(why), .delay = delay};
}

// Decides what follows after the newest round in `history`. The first check that applies decides. `used` and `used_for_cause`
// count restarts since the budget was last full, without the restart that is decided here.
rendezvous::Verdict decide(std::span<const FailedRound> history, int used, int used_for_cause, const RestartLimits& limits) {
  check(!history.empty(), "a restart was requested, but no round has failed");
  const FailedRound& last = history.back();
  const RestartRules& rules = limits.rules;
  const std::optional<int> for_cause = rules.of_cause[static_cast<std::size_t>(last.cause)];
  // If the exit code is kPreempted, the worker received a stop signal from another program and saved its state. This is not a
  // failure, and a restarted worker would probably be stopped again.
  constexpr int kPreempted = static_cast<int>(ExitCode::kPreempted);
  if (limits.preempted_has_saved && last.status.signal == 0 && last.status.code == kPreempted)
    return give_up(kPreempted, "the workers saved their state and stopped the job: run the job again to continue");
  if (is_unrecoverable(last.cause, rules)) return give_up(exit_code_of(last), hopeless_reason(last.cause));

  // If the next round computes the batch in smaller pieces (is_free()), the restart uses no budget. A batch can be split only a
  // limited number of times. A restart policy file may still forbid such restarts.
  if (last.cause == Cause::kOutOfMemory && last.shrink == channel::Shrink::kNothingLeft)
    return give_up(static_cast<int>(ExitCode::kOutOfMemory),
                   "out of memory, and the batch cannot be split into smaller pieces");
  if (is_free(last) && for_cause.value_or(1) > 0)
    return restart_after({}, "the same global batch is computed in smaller pieces, which does not count as a restart");

  const std::string rounds = rules.same_failure_rounds == 2 ? "two" : std::to_string(rules.same_failure_rounds);
  if (!for_cause && is_out_of_memory_again(history, rules.same_failure_rounds)) {
    return give_up(static_cast<int>(ExitCode::kOutOfMemory),
                   "out of memory in " + rounds +
                       " consecutive rounds, with nothing changed between them: use a smaller batch or model, or more memory; "
                       "after a restart, a script can read DDPRUN_RESTART_CAUSE and DDPRUN_OOM_COUNT and use less memory");
  }

  const std::string budget = std::to_string(limits.max_restarts);
  if (used >= limits.max_restarts) {
    if (limits.max_restarts == 0) return give_up(exit_code_of(last), "no restarts allowed (--max-restarts 0)");
    return give_up(exit_code_of(last),
                   "budget of " + budget + (limits.max_restarts == 1 ? " restart spent" : " restarts spent"));
  }

  if (for_cause && used_for_cause >= *for_cause) {
    const std::string cause = std::string("failures of cause ") + name_of(last.cause);
    return give_up(exit_code_of(last), *for_cause == 0 ? cause + " are not restarted (--restart-policy)"
                                                       : "the " + counted_restarts(*for_cause) + " allowed for " + cause +
                                                             (*for_cause == 1 ? " is spent" : " are spent"));
  }

  if (last.cause != Cause::kLateUsage && is_stuck(history, rules.same_failure_rounds)) {
    return give_up(static_cast<int>(is_out_of_memory(last.cause) ? ExitCode::kOutOfMemory : ExitCode::kNoProgress),
                   "the same failure at step " + std::to_string(last.step) + " in " + rounds + " rounds without progress");
  }

  return restart_after(pause_before_next(history, rules), "restart " + std::to_string(used + 1) + " of " + budget);
}

}  // namespace

// Counts the failed round in a copy of the budget, and decides with that copy.
rendezvous::Verdict decide_restart(const FailedRound& failed, const rendezvous::Budget& before, const RestartLimits& limits) {
  rendezvous::Budget after = before;
  RestartHistory& history = after.history;
  const bool progress = failed.has_newer_checkpoint() || survivors_held_more(history.rounds, failed);
  if (limits.refill_by_progress && progress) {
    history.used = 0;
    history.by_cause = {};
  }
  history.rounds.push_back(failed);
  if (history.rounds.size() > kRoundsRemembered) history.rounds.erase(history.rounds.begin());
  std::int32_t& used_for_cause = history.by_cause[static_cast<std::size_t>(failed.cause)];
  rendezvous::Verdict verdict = decide(history.rounds, history.used, used_for_cause, limits);
  if (!is_free(failed)) ++history.used;
  ++used_for_cause;
  if (verdict.restart) ++after.restart_count;
  // In two cases the other workers may have a valid training state, which they save. After kLateUsage the config was valid
  // when the job started, so only the replacement failed. Bad data is a usage error of a rank that has already trained in this
  // round. In this case the next start would read the same bad data and fail again. So the job does not end with kPreempted.
  const bool bad_data = failed.cause == Cause::kUsage && failed.step > std::max<std::int64_t>(failed.resumed_from, 0);
  verdict.others_save = !verdict.restart && (failed.cause == Cause::kLateUsage || bad_data);
  verdict.preempted_once_saved = !bad_data;
  verdict.after = std::move(after);
  return verdict;
}

}  // namespace ddprun
