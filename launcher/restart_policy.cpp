// Implementation of restart_policy.hpp: four questions, asked in order, each a function.
#include "launcher/restart_policy.hpp"

#include <algorithm>
#include <optional>

#include "common/exit_code.hpp"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kInstantCrash{1};
constexpr std::chrono::milliseconds kFirstPause{500};
constexpr std::chrono::milliseconds kLongestPause{30000};

// The first cause's own code where a worker's exit is the cause (DECISIONS.md 4).
int exit_code_of(const FailedRound& round) {
  const int code = round.status.as_exit_code();
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
      return "without a usable checkpoint a restart would fail again";
    case Cause::kStuck:
      return "a worker that cannot be killed holds what the next one would need";
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
      return nullptr;
  }
  return nullptr;
}

// The same failure twice in a row at the same step, the second round without a checkpoint of its own.
bool is_stuck(std::span<const FailedRound> history) {
  if (history.size() < 2) return false;
  const FailedRound& before = history[history.size() - 2];
  const FailedRound& last = history.back();
  return last.step >= 0 && last.step == before.step && last.cause == before.cause && last.rank == before.rank &&
         last.status.code == before.status.code && last.status.signal == before.status.signal && !made_progress(last);
}

int restarts_used(std::span<const FailedRound> history, const RestartLimits& limits) {
  int used = 0;
  for (const FailedRound& round : history.first(history.size() - 1)) {
    if (limits.refill_by_progress && made_progress(round)) used = 0;
    ++used;
  }
  if (limits.refill_by_progress && made_progress(history.back())) used = 0;
  return used;
}

std::chrono::milliseconds pause_before_next(std::span<const FailedRound> history) {
  const auto last_good = std::find_if(history.rbegin(), history.rend(), [](const FailedRound& round) {
    return round.lasted >= kInstantCrash || made_progress(round);
  });
  const auto instant_crashes = last_good - history.rbegin();
  if (instant_crashes <= 1) return {};
  const auto doublings = std::min<std::ptrdiff_t>(instant_crashes - 2, 10);
  return std::min(kFirstPause * (1 << doublings), kLongestPause);
}

}  // namespace

bool made_progress(const FailedRound& round) {
  return round.newest_checkpoint > round.resumed_from;
}

RestartDecision decide_restart(std::span<const FailedRound> history, const RestartLimits& limits) {
  return decide_restart(history, limits, restarts_used(history, limits));
}

RestartDecision decide_restart(std::span<const FailedRound> history, const RestartLimits& limits, int used) {
  const FailedRound& last = history.back();
  if (const char* why = why_hopeless(last.cause)) return GiveUp{exit_code_of(last), why};

  const std::string budget = std::to_string(limits.max_restarts);
  if (used >= limits.max_restarts) {
    if (limits.max_restarts == 0) return GiveUp{exit_code_of(last), "no restarts allowed (--max-restarts 0)"};
    return GiveUp{exit_code_of(last),
                  "budget of " + budget + (limits.max_restarts == 1 ? " restart spent" : " restarts spent")};
  }

  if (is_stuck(history)) {
    return GiveUp{static_cast<int>(ExitCode::kNoProgress),
                  "the same failure at step " + std::to_string(last.step) + " in two rounds without progress"};
  }

  return Restart{pause_before_next(history), "restart " + std::to_string(used + 1) + " of " + budget};
}

}  // namespace ddprun
