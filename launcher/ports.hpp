// A TCP port kept for MASTER_PORT: bound with SO_REUSEADDR but not listening, so that nobody else is given it and rank 0's
// TCPStore can still bind it (DECISIONS.md 9). launcher/agent.cpp holds one per round.
#pragma once

namespace ddprun {

class HeldPort {
 public:
  // A port the kernel picks. Throws InternalError when it has none.
  static HeldPort any();
  // That port. Throws UsageError when another socket listens on it.
  static HeldPort exactly(int port);

  HeldPort(HeldPort&& other) noexcept;
  HeldPort& operator=(HeldPort&& other) noexcept;
  ~HeldPort();

  int port() const { return port_; }

 private:
  HeldPort(int fd, int port) : fd_(fd), port_(port) {}
  int fd_ = -1;
  int port_ = 0;
};

}  // namespace ddprun
