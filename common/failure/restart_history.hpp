// What the restart policy (launcher/verdict/restart_policy.hpp) knows of a job: the round that has failed, and those before it.
// On one machine the agent keeps one. On many machines it is part of every node's budget (rendezvous/protocol/message.hpp), so
// that an elected coordinator counts on from there. Values only.
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

// One failed round as the policy sees it. A step that is not known is -1.
struct FailedRound {
  Cause cause = Cause::kExitCode;  // the first cause
  std::int32_t rank = -1;
  ExitStatus status{};                                      // of the worker that is the first cause
  std::int64_t step = -1;                                   // the last step that the rank reported; -1: it reports none
  std::int64_t resumed_from = -1;                           // the step at which the round began, or the newest checkpoint then
  std::int64_t newest_checkpoint = -1;                      // the newest checkpoint when the round ended
  std::chrono::nanoseconds lasted{};                        // from the round's start to the first cause
  std::uint16_t memory_asked = 0;                           // after running out of memory: memory_asked_in() of its message
  channel::Shrink shrink = channel::Shrink::kNothingKnown;  // after running out of memory: whether the next round needs less
  bool operator==(const FailedRound&) const = default;
  // The round published a checkpoint newer than the step it began with.
  bool published_more() const { return newest_checkpoint > resumed_from; }
};

// Enough rounds to compute the longest pause, which doubles at most twenty times.
inline constexpr std::size_t kRoundsRemembered = 22;

// How many restarts the job has used.
struct RestartHistory {
  std::int32_t used = 0;                         // since the budget was last full
  std::array<std::int32_t, kCauses> by_cause{};  // failed rounds since then, including those that cost no restart
  std::vector<FailedRound> rounds{};             // the last kRoundsRemembered that failed, the newest at the end
  bool operator==(const RestartHistory&) const = default;
};

}  // namespace ddprun
