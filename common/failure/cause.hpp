// The kind of failure that ended a round (one start of all workers). launcher/agent_state/round_judgement.cpp determines the
// cause, and launcher/restart_policy/restart_policy.cpp decides whether a restart can help. Nodes send the cause to each other
// as a number. The report and the file of the restart policy contain its name.
//
// How to add a cause:
// - Append it at the end, because the numbers are part of the rendezvous protocol. Update kLastCause. The compiler does not
//   check these two rules.
// - The compiler then reports each place that lacks the cause: the names in cause.cpp, and the switches in hopeless_reason()
//   and may_be_restarted() in restart_policy.cpp. It also reports the two formats that count by cause: messages and records of
//   nodes.
// - Tests check that docs/schemas contains the name.
// - If workers report the cause themselves, add an ErrorKind for it in common/channel.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddprun {

enum class Cause : std::uint8_t {
  kExitCode,
  kSignal,
  kException,
  kUsage,
  kOutOfMemory,
  kLostPeer,
  kDiverged,
  kCheckpoint,
  kSpawn,
  kStopped,
  kTimerExpired,
  kStuck,
  kHostOutOfMemory,       // the kernel's OOM killer killed the worker, according to the kernel's counters
  kSuspectedOutOfMemory,  // SIGKILL from an unknown sender while memory was scarce
  kHang,
  kCorruptState,  // the worker's training state differs from the state of the other ranks after the same steps
  kDevice,        // the worker's GPU is broken or lost (device_failure.hpp)
  kSuperseded,    // a newer invocation of ddprun continues this run
  kLateUsage,     // a worker reports a usage error, but the config worked earlier in this job; for example, a file was deleted
};
inline constexpr Cause kLastCause = Cause::kLateUsage;
inline constexpr std::size_t kCauses = static_cast<std::size_t>(kLastCause) + 1;

// Returns the cause's name in the report, in the output of `--json`, and in the file of the restart policy.
const char* name_of(Cause cause);

}  // namespace ddprun
