// What the restart policy (launcher/verdict/restart_policy.hpp) knows of a job: the round that has failed, and those before it.
// An agent on one machine keeps one; on many machines it is in every node's budget (rendezvous/protocol/message.hpp), so that a
// successor of the coordinator counts on. Values only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/channel/message.hpp"
#include "common/failure/cause.hpp"
#include "common/failure/exit_status.hpp"

namespace ddprun {

// One failed round as the policy sees it. Steps are -1 where there are none.
struct FailedRound {
  Cause cause = Cause::kExitCode;  // of the first cause
  std::int32_t rank = -1;
  ExitStatus status{};                                      // of the first cause's worker
  std::int64_t step = -1;                                   // last one the rank reported; -1: it reports none
  std::int64_t resumed_from = -1;                           // newest checkpoint when the round began
  std::int64_t newest_checkpoint = -1;                      // newest one when it ended
  std::chrono::nanoseconds lasted{};                        // from its start to the first cause
  std::uint16_t memory_asked = 0;                           // out of memory: memory_asked_in() of its message
  channel::Shrink shrink = channel::Shrink::kNothingKnown;  // out of memory: whether the next round needs less
  bool operator==(const FailedRound&) const = default;
  // It published a checkpoint newer than the one it began with.
  bool made_progress() const { return newest_checkpoint > resumed_from; }
};

// Enough for the longest pause: it doubles at most twenty times.
inline constexpr std::size_t kRoundsRemembered = 22;

// What a job has used of its restarts.
struct RestartHistory {
  std::int32_t used = 0;                         // since the budget was last full
  std::array<std::int32_t, kCauses> by_cause{};  // failed rounds since then, those included that cost nothing
  std::vector<FailedRound> rounds{};             // the last kRoundsRemembered that failed, the newest at the end
  bool operator==(const RestartHistory&) const = default;
};

}  // namespace ddprun
