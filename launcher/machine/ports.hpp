// A TCP port that is reserved for MASTER_PORT: a socket that is bound and does not listen.
// launcher/tcp_store/master_endpoint.hpp keeps the port reserved across rounds.
//
// Only rank 0's TCPStore or the agent's store may listen on a reserved port, and no other program. The kernel compares the
// options of both sockets. Two sockets with SO_REUSEADDR may share a port until one of them listens. So a reserving socket
// with that option allows rank 0's TCPStore to listen, since TCPStore sets the option
// (docs/internals/decisions/launcher/held-master-port.md). But it also allows any other server on the machine that sets
// SO_REUSEADDR. Two sockets of one user with SO_REUSEPORT may share a port in any state. So while the agent's store listens on
// the port, admit() clears SO_REUSEADDR and sets SO_REUSEPORT. Then a program of another user gets EADDRINUSE, and so does
// every usual server of the same user.
//
// Note: two jobs whose sockets set the same option could bind the same port. Each would assume that it alone has the port. So
// each job also binds an abstract Unix socket named after the port. Like ports, these names belong to the network namespace,
// and the kernel frees them when the process ends. Any local user can bind such a name without binding the port. In that case
// a second test decides: the port is free if a socket without options can bind it.
#pragma once

#include <chrono>

#include "common/system/descriptor.hpp"

namespace ddprun {

// kExactly means that the user named the port, so no other port is acceptable. kIfFree means that the port is a default, so
// another free port is used if it is taken.
enum class PortNeed { kExactly, kIfFree };

// A range from which a free port is chosen. If `low` and `high` are zero, the kernel chooses any free port.
struct PortRange {
  int low = 0;
  int high = 0;
  bool given() const { return low > 0; }
  int size() const { return high - low + 1; }
  bool operator==(const PortRange&) const = default;
};

// The time for which a new agent waits for its port. A supervisor may restart a killed agent immediately, while its guardian is
// still closing the store of scripts.
inline constexpr std::chrono::milliseconds kStoreCloseTimeout{3000};

// Waits for at most kStoreCloseTimeout while the store of a killed agent still uses the port. If the port is not free by then,
// the later attempt to listen on it reports the error.
void wait_for_port_release(int port);

// The part of the job that will listen on a reserved port.
enum class PortListener { kRank0, kAgentsStore };

class HeldPort {
 public:
  // Returns a free port in `range`, or one chosen by the kernel if there is no range. Throws InternalError if the kernel has
  // no free port, and UsageError if the range has none.
  static HeldPort any(const PortRange& range = {});
  // Reserves exactly the port `port`. If another program uses it, waits up to `timeout` for its release. Throws UsageError if
  // another program still listens on it or another agent has reserved it.
  static HeldPort exactly(int port, std::chrono::milliseconds timeout = {});
  // Returns a HeldPort for a port at which this process already listens. Binds only the abstract socket that marks the port as
  // reserved, so that no other ddprun uses the port.
  static HeldPort own(int port);
  // Reserves `port`, or any free port (see any()) if `port` is 0. If the port is taken, `need` decides: kIfFree reserves any
  // free port, and kExactly throws UsageError.
  static HeldPort of(int port, PortNeed need, const PortRange& range = {});

  int port() const { return port_; }
  // Sets the socket options so that `listener` can listen on the port, but as few other programs as possible can. At first
  // `listener` is kRank0.
  void admit(PortListener listener);

 private:
  static HeldPort within(const PortRange& range);
  HeldPort(int socket, int name, int port) : socket_(socket), name_(name), port_(port) {}
  Descriptor socket_;
  Descriptor name_;
  int port_ = 0;
};

}  // namespace ddprun
