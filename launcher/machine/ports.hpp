// A TCP port that is reserved for MASTER_PORT: a socket that is bound and does not listen. launcher/agent/master_endpoint.hpp
// holds one over the rounds.
//
// Who may listen at a port that is held: rank 0's TCPStore or the agent's store, and no other program. The kernel compares the
// options of both sockets. Two sockets with SO_REUSEADDR may share a port until one of them listens. So a socket held with that
// option lets rank 0's TCPStore in, which sets it (decision 9), and with it any other server on the machine. Two sockets of one
// user with SO_REUSEPORT may share a port in any state. So while the agent's store listens there, hold() clears the first
// option and sets the second: a program of another user gets EADDRINUSE, and so does every usual server of the same user.
//
// Note: two jobs of one kind could hold one port, and each would believe that it is theirs. Each also takes an abstract Unix
// socket named after the port; these names belong to the network namespace, as ports do, and end with their holder. Any local
// user can take such a name and not hold the port. Then the port decides: it is ours if a socket without options can bind it.
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

// Who will listen there.
enum class PortListener { kRank0, kAgentsStore };

class HeldPort {
 public:
  // A port that the kernel chooses, or one of that range. Throws InternalError when the kernel has none, UsageError when the
  // range is full.
  static HeldPort any(const PortRange& range = {});
  // Exactly that port. Throws UsageError when another program listens on it or another ddprun holds it. `patience`: how long it
  // may be somebody else's first.
  static HeldPort exactly(int port, std::chrono::milliseconds patience = {});
  // A port at which this process already listens. Reserves only the port's name, so that no other ddprun takes the port.
  static HeldPort own(int port);
  // The port that a plan asks for; 0 means any.
  static HeldPort of(int port, PortNeed need, const PortRange& range = {});

  HeldPort(HeldPort&& other) noexcept;
  HeldPort& operator=(HeldPort&& other) noexcept;
  ~HeldPort();

  int port() const { return port_; }
  // Lets that one listen there, and as few others as possible. A new HeldPort lets rank 0 in.
  void let_in(PortListener listener);

 private:
  static HeldPort within(const PortRange& range);
  HeldPort(int fd, int name_fd, int port) : fd_(fd), name_fd_(name_fd), port_(port) {}
  int fd_ = -1;
  int name_fd_ = -1;
  int port_ = 0;
};

}  // namespace ddprun
