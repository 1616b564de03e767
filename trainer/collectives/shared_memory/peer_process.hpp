// Detects that the process of another rank has ended. This is needed if no agent aborts the group: under other launchers, and
// in tests.
//
// A process is identified by its number, its start time and its pid namespace, because numbers are reused. A pidfd refers to
// one process even after its number was reused. So the pidfd is opened once, and then the start time is compared. A process
// that has ended but was not reaped counts as ended. If the process can't be examined (another pid namespace, no permission),
// it counts as running: the limit of the wait then applies.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/system/descriptor.hpp"

namespace ddprun::trainer::collectives {

struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;     // start time of the process, in clock ticks after the boot
  std::uint64_t pid_namespace = 0;  // inode
};

ProcessIdentity this_process();

class PeerProcess {
 public:
  explicit PeerProcess(const ProcessIdentity& identity);
  bool has_ended() const;

 private:
  enum class Kind { kRunning, kEnded, kUnknown };
  Kind kind_ = Kind::kUnknown;  // state of the process when the object was created
  Descriptor pidfd_;
};

// Returns the start time in the text of /proc/PID/stat, or nullopt if the text has another format. The function is pure.
std::optional<std::uint64_t> start_time_in(std::string_view stat);

}  // namespace ddprun::trainer::collectives
