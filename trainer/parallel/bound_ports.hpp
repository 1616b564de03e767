// Keeps the ports that Gloo listens on within a range that a firewall opens (--port-range). Gloo has no option for that: it
// binds to port 0, and so this program's own bind() chooses one where it is asked to, and is the kernel's everywhere else.
#pragma once

#include <optional>
#include <string_view>

namespace ddprun::trainer {

struct BoundPortRange {
  int low = 0;
  int high = 0;
};

// "LOW-HIGH"; nothing of what is no range.
std::optional<BoundPortRange> port_range_of(std::string_view text);

// While it lives, whatever this thread binds to any port is bound to one of `range` that nobody has; to any where all are
// taken, which is said on stderr. Without a range nothing changes. One at a time on a thread.
class BoundPorts {
 public:
  explicit BoundPorts(std::optional<BoundPortRange> range);
  ~BoundPorts();
  BoundPorts(const BoundPorts&) = delete;
  BoundPorts& operator=(const BoundPorts&) = delete;
};

}  // namespace ddprun::trainer
