// Implementation of restart_policy.hpp: four checks in a fixed order, each a function.
#include "launcher/verdict/restart_policy.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/exit_code.hpp"

namespace ddprun {
namespace {

// The exit code of the worker that is the first cause, if its exit is the cause (decision 4).
int exit_code_of(const FailedRound& round) {
  // A hanging worker dies of our own SIGKILL, so its status does not show the cause.
  const int code = round.cause == Cause::kHang ? 0 : round.status.as_exit_code();
  return code != 0 ? code : static_cast<int>(ExitCode::kBudgetSpent);
}

const char* why_hopeless(Cause cause) {
  switch (cause) {
    case Cause::kUsage:
      return "usage errors are not restarted";
    case Cause::kSpawn:
      return "a program that can't be started is not restarted";
    case Cause::kDiverged:
      return "a diverged run is not restarted: it would diverge again";
    case Cause::kCheckpoint:
      return "a checkpoint that can't be read or saved is not mended by a restart";
    case Cause::kStuck:
      return "a worker that cannot be killed holds what the next one would need";
    case Cause::kSuperseded:
      return "another start goes on with this run";
    case Cause::kDevice:
      return "a GPU that failed is not tried again: hide it (CUDA_VISIBLE_DEVICES) or have it reset";
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
  check_failed("a round failed of a cause that there is not");
}

bool same_failure(const FailedRound& a, const FailedRound& b) {
  // A script that runs out of memory at the same step but asks for another amount has changed something.
  return a.step >= 0 && a.step == b.step && a.cause == b.cause && a.rank == b.rank && a.status.code == b.status.code &&
         a.status.signal == b.status.signal && (!is_out_of_memory(a.cause) || a.memory_asked == b.memory_asked);
}

// True if that round made progress, as far as known now. The step that survivors held is known only when the next round has
// begun.
bool made_progress(std::span<const FailedRound> history, std::size_t round) {
  if (history[round].published_more()) return true;
  return round + 1 < history.size() && survivors_held_more(history.first(round + 1), history[round + 1]);
}

// True if the last `rounds` rounds failed in the same way at the same step, and only the first of them may have made progress.
bool is_stuck(std::span<const FailedRound> history, int rounds) {
  if (rounds == 0 || history.size() < static_cast<std::size_t>(rounds)) return false;
  for (std::size_t i = history.size() - static_cast<std::size_t>(rounds) + 1; i < history.size(); ++i)
    if (!same_failure(history[i - 1], history[i]) || made_progress(history, i)) return false;
  return true;
}

// True if the last `rounds` rounds of a program that reports no steps failed to allocate the same amount of memory.
bool is_out_of_memory_again(std::span<const FailedRound> history, int rounds) {
  if (rounds == 0 || history.size() < static_cast<std::size_t>(rounds)) return false;
  const auto last = history.last(static_cast<std::size_t>(rounds));
  return std::all_of(last.begin(), last.end(), [&](const FailedRound& round) {
    return is_out_of_memory(round.cause) && round.step < 0 && round.cause == last.back().cause &&
           round.memory_asked == last.back().memory_asked;
  });
}

int count_of(const RestartHistory& history, Cause cause) {
  return history.by_cause[static_cast<std::size_t>(cause)];
}

// The resource that a worker lacked may come back (a mount, a file server), so each pause is twice as long as the one before.
std::chrono::milliseconds pause_for_what_is_gone(std::span<const FailedRound> history, const RestartRules& rules) {
  const auto other =
      std::find_if(history.rbegin(), history.rend(), [](const FailedRound& r) { return r.cause != Cause::kLateUsage; });
  const auto tries = std::min<std::ptrdiff_t>(other - history.rbegin(), 20);
  constexpr int kOfTheFirstPause = 4;
  return tries == 0 ? std::chrono::milliseconds{}
                    : std::min(rules.first_pause * kOfTheFirstPause * (1 << (tries - 1)), rules.longest_pause);
}

std::chrono::milliseconds pause_before_next(std::span<const FailedRound> history, const RestartRules& rules) {
  if (history.back().cause == Cause::kLateUsage) return pause_for_what_is_gone(history, rules);
  std::size_t instant_crashes = 0;  // in a row, up to the last round
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
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(time.count()) / 1000);
  return text;
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
  check_failed("a restart may help against a cause that there is not");
}

bool is_hopeless(Cause cause, const RestartRules& rules) {
  const bool asked_for = rules.of_cause[static_cast<std::size_t>(cause)].has_value();
  return why_hopeless(cause) != nullptr && !(asked_for && may_be_restarted(cause));
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

// `used` and `used_for_cause` count restarts since the budget was last full, without the one that is decided here.
rendezvous::Verdict decide(std::span<const FailedRound> history, int used, int used_for_cause, const RestartLimits& limits) {
  check(!history.empty(), "a restart is decided on without a failed round");
  const FailedRound& last = history.back();
  const RestartRules& rules = limits.rules;
  const std::optional<int> for_cause = rules.of_cause[static_cast<std::size_t>(last.cause)];
  // The worker got a signal that was not ours. That is not a failure, and a restarted worker would be stopped again.
  constexpr int kPreempted = static_cast<int>(ExitCode::kPreempted);
  if (limits.preempted_has_saved && last.status.signal == 0 && last.status.code == kPreempted)
    return give_up(kPreempted, "stopped by its workers after saving: run it again to go on");
  if (is_hopeless(last.cause, rules)) return give_up(exit_code_of(last), why_hopeless(last.cause));

  // The batch can be halved only a limited number of times, so such restarts use no budget. A policy may forbid them.
  if (last.cause == Cause::kOutOfMemory && last.shrink == channel::Shrink::kNothingLeft)
    return give_up(static_cast<int>(ExitCode::kOutOfMemory), "out of memory with nothing left to shrink");
  if (is_free(last) && for_cause.value_or(1) > 0)
    return restart_after({}, "the same global batch in smaller pieces, which costs no restart");

  const std::string rounds = rules.same_failure_rounds == 2 ? "two" : std::to_string(rules.same_failure_rounds);
  if (!for_cause && is_out_of_memory_again(history, rules.same_failure_rounds)) {
    return give_up(
        static_cast<int>(ExitCode::kOutOfMemory),
        "out of memory in " + rounds +
            " rounds in a row, and nothing has changed: a smaller batch or model, or more memory; a script can go on "
            "with less when DDPRUN_RESTART_CAUSE and DDPRUN_OOM_COUNT tell it of a restart");
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

rendezvous::Verdict decide_restart(const FailedRound& failed, const rendezvous::Budget& before, const RestartLimits& limits) {
  rendezvous::Budget after = before;
  RestartHistory& history = after.history;
  const bool progress = failed.published_more() || survivors_held_more(history.rounds, failed);
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
  // The config was valid when the job began, so a usage error of a replacement does not make the state of the others suspect.
  // Nor does bad data on a rank that has trained in this round. But the next start will read that data again.
  const bool bad_data = failed.cause == Cause::kUsage && failed.step > std::max<std::int64_t>(failed.resumed_from, 0);
  verdict.others_save = !verdict.restart && (failed.cause == Cause::kLateUsage || bad_data);
  verdict.preempted_once_saved = !bad_data;
  verdict.after = std::move(after);
  return verdict;
}

}  // namespace ddprun
