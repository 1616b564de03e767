// A job's failed rounds, the input of the restart policy (launcher/restart_policy/restart_policy.hpp). On one machine, the
// agent stores them. In a multi-node job, the failed rounds are part of the Budget that every node stores
// (rendezvous/protocol/round.hpp). So a newly elected coordinator can continue to count. All types are plain values.
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

// The properties of a failed round that the restart policy uses. An unknown step is -1.
struct FailedRound {
  Cause cause = Cause::kExitCode;  // why the round failed
  std::int32_t rank = -1;
  ExitStatus status{};     // exit status of the worker whose failure ended the round
  std::int64_t step = -1;  // the last step that the failed rank reported; -1 if it reported none
  // the step at which the round started, or the step of the newest checkpoint at that time
  std::int64_t resumed_from = -1;
  std::int64_t newest_checkpoint = -1;  // the step of the newest checkpoint when the round ended
  std::chrono::nanoseconds lasted{};    // time from the start of the round to the failure that ended it
  // after an out-of-memory failure: hash of the requested amount (memory_requested_in()); 0: unknown
  std::uint16_t memory_requested = 0;
  // after an out-of-memory failure: whether a restart would need less memory
  channel::Shrink shrink = channel::Shrink::kNothingKnown;
  bool operator==(const FailedRound&) const = default;
  // Returns true if the round published a checkpoint newer than the step at which it started.
  bool has_newer_checkpoint() const { return newest_checkpoint > resumed_from; }
};

// The number of failed rounds that are stored. The restart delay doubles for each stored round that crashed at its start, at
// most twenty times.
inline constexpr std::size_t kRoundsRemembered = 22;

// The restarts and failed rounds of a job. The restart policy uses them to decide about the next restart.
struct RestartHistory {
  std::int32_t used = 0;  // restarts since the budget was last full
  // number of failed rounds by cause since the budget was last full, including rounds after which no restart was counted
  std::array<std::int32_t, kCauses> by_cause{};
  std::vector<FailedRound> rounds{};  // the last kRoundsRemembered failed rounds, the newest at the end
  bool operator==(const RestartHistory&) const = default;
};

}  // namespace ddprun
