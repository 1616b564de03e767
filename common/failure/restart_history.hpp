// A job's failed rounds, as input of the restart policy (launcher/verdict/restart_policy.hpp). On one machine the agent keeps
// them. In a multi-node job they are part of every node's budget (rendezvous/protocol/message.hpp), so that an elected
// coordinator can continue to count. Values only.
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

// One failed round as the policy sees it. An unknown step is -1.
struct FailedRound {
  Cause cause = Cause::kExitCode;  // the first cause
  std::int32_t rank = -1;
  ExitStatus status{};                                      // of the worker with the first cause
  std::int64_t step = -1;                                   // the last step that the rank reported; -1: it reported none
  std::int64_t resumed_from = -1;                           // the step at which the round began, or the newest checkpoint then
  std::int64_t newest_checkpoint = -1;                      // the newest checkpoint when the round ended
  std::chrono::nanoseconds lasted{};                        // from the round's start to the first cause
  std::uint16_t memory_asked = 0;                           // after out of memory: memory_asked_in() of its message
  channel::Shrink shrink = channel::Shrink::kNothingKnown;  // after out of memory: whether the next round needs less
  bool operator==(const FailedRound&) const = default;
  // True if the round published a checkpoint newer than the step at which it began.
  bool published_more() const { return newest_checkpoint > resumed_from; }
};

// Enough rounds to compute the longest pause, which doubles at most twenty times.
inline constexpr std::size_t kRoundsRemembered = 22;

// The restarts that the job has used.
struct RestartHistory {
  std::int32_t used = 0;                         // since the budget was last full
  std::array<std::int32_t, kCauses> by_cause{};  // failed rounds since then, including those without a counted restart
  std::vector<FailedRound> rounds{};             // the last kRoundsRemembered failed rounds, the newest at the end
  bool operator==(const RestartHistory&) const = default;
};

}  // namespace ddprun
