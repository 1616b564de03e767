// A TCP port that is reserved for MASTER_PORT. The socket is bound with SO_REUSEADDR but not listening, so the kernel gives the
// port to nobody else, and rank 0's TCPStore can still bind it (decision 9). launcher/agent/master_endpoint.hpp holds one a
// round.
//
// Note: two such sockets can be bound to one port, so two jobs could believe that it is theirs. Each also takes an abstract
// Unix socket named after the port; like ports, these names belong to the network namespace and end with their holder.
#pragma once

#include <chrono>

namespace ddprun {

// kExactly: the user named the port, so no other one will do. kIfFree: it is a default, and a free port replaces it when it is
// taken.
enum class PortNeed { kExactly, kIfFree };

// The range of free ports; all zero: the kernel chooses.
struct PortRange {
  int low = 0;
  int high = 0;
  bool given() const { return low > 0; }
  int size() const { return high - low + 1; }
  bool operator==(const PortRange&) const = default;
};

// A supervisor starts a killed agent again at once, while its guardian is still closing the store of scripts.
inline constexpr std::chrono::milliseconds kUntilAKilledAgentsStoreIsGone{3000};

// Waits so long at most while a killed agent's store has the port. Whoever listens there next says what is wrong with it.
void await_port_of_killed_agent(int port);

class HeldPort {
 public:
  // A port that the kernel chooses, or one of that range. Throws InternalError when the kernel has none, UsageError when the
  // range is full.
  static HeldPort any(const PortRange& range = {});
  // Exactly that port. Throws UsageError when another program listens on it or another ddprun holds it. `patience`: how long it
  // may be somebody else's first.
  static HeldPort exactly(int port, std::chrono::milliseconds patience = {});
  // The port that a plan asks for; 0 means any.
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
