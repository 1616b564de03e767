#include "common/failure/cause.hpp"

#include <array>

#include "common/base/check.hpp"

namespace ddprun {
namespace {

// The names are in the order of the enum.
constexpr std::array kNames{"exit_code",
                            "signal",
                            "exception",
                            "usage",
                            "out_of_memory",
                            "lost_peer",
                            "diverged",
                            "checkpoint",
                            "spawn",
                            "stopped",
                            "timer_expired",
                            "uninterruptible",
                            "host_out_of_memory",
                            "host_out_of_memory_suspected",
                            "hang",
                            "corrupt_state",
                            "device",
                            "superseded",
                            "late_usage"};
static_assert(kNames.size() == kCauses, "expected one name for each Cause");

}  // namespace

const char* name_of(Cause cause) {
  const auto place = static_cast<std::size_t>(cause);
  check(place < kNames.size(), "unknown cause of a failed round");
  return kNames[place];
}

}  // namespace ddprun
