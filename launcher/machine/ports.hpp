// A TCP port kept for MASTER_PORT: bound with SO_REUSEADDR but not listening, so that nobody else is given it and rank 0's
// TCPStore can still bind it (decision 9). launcher/agent/master_endpoint.hpp holds one per round.
//
// Note: two such sockets can be bound to one port, so that alone would let two jobs believe that it is theirs. Each also takes
// an abstract Unix socket named after the port; like ports, these names belong to the network namespace and end with their
// holder.
#pragma once

namespace ddprun {

// Of MASTER_PORT: one that somebody named is that one or none; a default is given up for a free one when it is taken.
enum class PortNeed { kExactly, kIfFree };

// Where free ports are taken from; all zero: wherever the kernel takes them.
struct PortRange {
  int low = 0;
  int high = 0;
  bool given() const { return low > 0; }
  int size() const { return high - low + 1; }
  bool operator==(const PortRange&) const = default;
};

class HeldPort {
 public:
  // A port the kernel picks, or one of that range. Throws InternalError when the kernel has none, UsageError when the range is
  // all taken.
  static HeldPort any(const PortRange& range = {});
  // That port. Throws UsageError when another program listens on it or another ddprun holds it.
  static HeldPort exactly(int port);
  // What a plan asks for; 0 is any.
  static HeldPort of(int port, PortNeed need, const PortRange& range = {});

  HeldPort(HeldPort&& other) noexcept;
  HeldPort& operator=(HeldPort&& other) noexcept;
  ~HeldPort();

  int port() const { return port_; }

 private:
  static HeldPort within(const PortRange& range);
  HeldPort(int fd, int name_fd, int port) : fd_(fd), name_fd_(name_fd), port_(port) {}
  int fd_ = -1;
  int name_fd_ = -1;
  int port_ = 0;
};

}  // namespace ddprun
