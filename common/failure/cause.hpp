// Why a round failed, in one word. The launcher finds it, the nodes tell it each other, the report and the restart policy's
// file name it. A new cause goes to the end: its number is on the wire between nodes.
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
  kHostOutOfMemory,       // the kernel killed it, as its own counters say
  kSuspectedOutOfMemory,  // SIGKILL from nowhere while memory was short
  kHang,
  kCorruptState,  // its training state is not that of the other ranks, although all did the same
  kDevice,        // its GPU is broken or gone (device_failure.hpp)
  kSuperseded,    // another start goes on with this run
  kLateUsage,     // a usage error of a worker that takes up what others have begun with the same config: something is gone
};
inline constexpr Cause kLastCause = Cause::kLateUsage;
inline constexpr std::size_t kCauses = static_cast<std::size_t>(kLastCause) + 1;

// As the report, `--json` and the restart policy's file spell it.
const char* name_of(Cause cause);

}  // namespace ddprun
