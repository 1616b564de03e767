// Keeps the ports on which Gloo listens within a range that a firewall opens (--port-range). Gloo has no option for that: it
// binds to port 0. So this program defines bind(), which chooses a port from the range while a BoundPorts exists. Otherwise it
// only calls the kernel.
#pragma once

#include <optional>
#include <string_view>

namespace ddprun::trainer {

struct BoundPortRange {
  int low = 0;
  int high = 0;
};

// Parses "LOW-HIGH"; nullopt if the text is not a range.
std::optional<BoundPortRange> port_range_of(std::string_view text);

// While it exists, a bind() to port 0 on this thread gets a free port of `range`. If all are taken, it gets any port, with a
// message on stderr. Without a range nothing changes. At most one per thread at a time.
class BoundPorts {
 public:
  explicit BoundPorts(std::optional<BoundPortRange> range);
  ~BoundPorts();
  BoundPorts(const BoundPorts&) = delete;
  BoundPorts& operator=(const BoundPorts&) = delete;
};

}  // namespace ddprun::trainer
