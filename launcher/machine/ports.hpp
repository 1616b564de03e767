// A TCP port that is reserved for MASTER_PORT: a socket that is bound and does not listen. launcher/agent/master_endpoint.hpp
// holds one across rounds.
//
// Only rank 0's TCPStore or the agent's store may listen at a held port, and no other program. The kernel compares the options
// of both sockets. Two sockets with SO_REUSEADDR may share a port until one of them listens. So a socket held with that option
// allows rank 0's TCPStore to listen, since it sets the option (decision 9), but also any other server on the machine. Two
// sockets of one user with SO_REUSEPORT may share a port in any state. So while the agent's store listens there, hold() clears
// the first option and sets the second. Then a program of another user gets EADDRINUSE, and so does every usual server of the
// same user.
//
// Note: two jobs of one kind could bind the same port, and each would assume that it holds it exclusively. So each also binds
// an abstract Unix socket named after the port. Like ports, these names belong to the network namespace, and they end with
// their holder. Any local user can take such a name without holding the port. In that case the port decides: it is ours if a
// socket without options can bind it.
#pragma once

#include <chrono>

namespace ddprun {

// kExactly: the user named the port, so no other port is acceptable. kIfFree: the port is a default, and a free port replaces
// it if it is taken.
enum class PortNeed { kExactly, kIfFree };

// The range of free ports; all zero: the kernel chooses.
struct PortRange {
  int low = 0;
  int high = 0;
  bool given() const { return low > 0; }
  int size() const { return high - low + 1; }
  bool operator==(const PortRange&) const = default;
};

// A supervisor may restart a killed agent immediately, while its guardian is still closing the store of scripts.
inline constexpr std::chrono::milliseconds kUntilAKilledAgentsStoreIsGone{3000};

// Waits at most that long while the store of a killed agent has the port. A later attempt to listen there reports any remaining
// problem.
void await_port_of_killed_agent(int port);

// The process that will listen there.
enum class PortListener { kRank0, kAgentsStore };

class HeldPort {
 public:
  // A port chosen by the kernel, or one in that range. Throws InternalError if the kernel has no port left, UsageError if the
  // range is full.
  static HeldPort any(const PortRange& range = {});
  // Exactly that port. Throws UsageError if another program listens on it or another ddprun holds it. `patience`: how long to
  // wait for another program to release it.
  static HeldPort exactly(int port, std::chrono::milliseconds patience = {});
  // A port at which this process already listens. Reserves only the port's name, so that no other ddprun uses the port.
  static HeldPort own(int port);
  // The port that a plan requests; 0 means any.
  static HeldPort of(int port, PortNeed need, const PortRange& range = {});

  HeldPort(HeldPort&& other) noexcept;
  HeldPort& operator=(HeldPort&& other) noexcept;
  ~HeldPort();

  int port() const { return port_; }
  // Lets `listener` listen there, and as few other programs as possible. A new HeldPort admits rank 0.
  void let_in(PortListener listener);

 private:
  static HeldPort within(const PortRange& range);
  HeldPort(int fd, int name_fd, int port) : fd_(fd), name_fd_(name_fd), port_(port) {}
  int fd_ = -1;
  int name_fd_ = -1;
  int port_ = 0;
};

}  // namespace ddprun
