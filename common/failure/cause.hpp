// The kind of failure of a round. launcher/decide/round_judgement.cpp finds the cause, and launcher/verdict/restart_policy.cpp
// decides whether a restart can help. Nodes send it to each other; the report and the restart policy's file contain its name.
// To add a cause, append it at the end, since its number is on the wire between nodes, and move kLastCause, which the compiler
// does not check. The compiler does report each switch that lacks the cause: name_of() here, why_hopeless() and
// may_be_restarted() in restart_policy.cpp. After kLastCause has moved, it also reports the two formats that count by cause:
// messages and records of nodes. Tests check for the name in docs/schemas. If workers report the cause themselves,
// common/channel needs a kind for it.
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
  kHostOutOfMemory,       // the kernel's OOM killer killed it, according to its counters
  kSuspectedOutOfMemory,  // SIGKILL from an unknown sender while memory was short
  kHang,
  kCorruptState,  // its training state differs from that of the other ranks, although all ran the same steps
  kDevice,        // its GPU is broken or gone (device_failure.hpp)
  kSuperseded,    // another start continues this run
  kLateUsage,     // a usage error of a worker after others started with the same config: something has disappeared
};
inline constexpr Cause kLastCause = Cause::kLateUsage;
inline constexpr std::size_t kCauses = static_cast<std::size_t>(kLastCause) + 1;

// The cause's name in the report, in `--json` and in the restart policy's file.
const char* name_of(Cause cause);

}  // namespace ddprun
