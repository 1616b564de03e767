// Why a round failed, in one word. launcher/decide/round_judgement.cpp finds the cause, and launcher/verdict/restart_policy.cpp
// says whether a restart can help. Nodes send it to each other; the report and the restart policy's file name it. Add a new
// cause at the end, since its number is on the wire between nodes, and move kLastCause, which the compiler does not check. It
// does name each switch that lacks the cause: name_of() here, why_hopeless() and may_be_restarted() in restart_policy.cpp. Once
// kLastCause has moved, it also names the two formats that count by cause: messages and records of nodes. Tests ask for the
// name in docs/schemas. If a worker says the cause itself, common/channel has a kind for it.
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
  kHostOutOfMemory,       // the kernel's OOM killer has killed it, as its counters say
  kSuspectedOutOfMemory,  // SIGKILL from an unknown sender while memory was short
  kHang,
  kCorruptState,  // its training state differs from the other ranks', although all did the same
  kDevice,        // its GPU is broken or gone (device_failure.hpp)
  kSuperseded,    // another start continues this run
  kLateUsage,     // a usage error of a worker after others began with the same config: something has disappeared
};
inline constexpr Cause kLastCause = Cause::kLateUsage;
inline constexpr std::size_t kCauses = static_cast<std::size_t>(kLastCause) + 1;

// The cause's name in the report, in `--json` and in the restart policy's file.
const char* name_of(Cause cause);

}  // namespace ddprun
