// Makes Gloo listen only on ports that a firewall allows (--port-range). Gloo has no such option: it binds to port 0, and the
// kernel selects a port. So this program defines its own bind(), which replaces bind() of the C library. While a BoundPorts
// object exists, bind() to port 0 selects a port of the range, or fails if none is free. In all other cases, bind() only makes
// the system call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddprun::trainer {

struct BoundPortRange {
  int low = 0;
  int high = 0;
};

// Parses "LOW-HIGH". Returns nullopt if the text is not a range of ports.
std::optional<BoundPortRange> port_range_of(std::string_view text);

// Sets the port range for this thread while the object exists. A bind() to port 0 then gets a free port of `range`. If no port
// of the range is free, bind() fails, and problem() describes the error. Does nothing for nullopt. At most one object may exist
// per thread.
class BoundPorts {
 public:
  explicit BoundPorts(std::optional<BoundPortRange> range);
  ~BoundPorts();
  BoundPorts(const BoundPorts&) = delete;
  BoundPorts& operator=(const BoundPorts&) = delete;

  // Returns the reason if a bind() found no port of the range, and an empty string otherwise.
  std::string problem() const;
};

}  // namespace ddprun::trainer
