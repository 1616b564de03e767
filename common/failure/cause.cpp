// See cause.hpp.
#include "common/failure/cause.hpp"

#include "common/base/check.hpp"

namespace ddprun {

const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::kExitCode:
      return "exit_code";
    case Cause::kSignal:
      return "signal";
    case Cause::kException:
      return "exception";
    case Cause::kUsage:
      return "usage";
    case Cause::kOutOfMemory:
      return "out_of_memory";
    case Cause::kLostPeer:
      return "lost_peer";
    case Cause::kDiverged:
      return "diverged";
    case Cause::kCheckpoint:
      return "checkpoint";
    case Cause::kSpawn:
      return "spawn";
    case Cause::kStopped:
      return "stopped";
    case Cause::kTimerExpired:
      return "timer_expired";
    case Cause::kStuck:
      return "uninterruptible";
    case Cause::kHostOutOfMemory:
      return "host_out_of_memory";
    case Cause::kSuspectedOutOfMemory:
      return "host_out_of_memory_suspected";
    case Cause::kHang:
      return "hang";
    case Cause::kCorruptState:
      return "corrupt_state";
    case Cause::kDevice:
      return "device";
    case Cause::kSuperseded:
      return "superseded";
    case Cause::kLateUsage:
      return "late_usage";
  }
  check_failed("a round failed of a cause that there is not");
}

}  // namespace ddprun
