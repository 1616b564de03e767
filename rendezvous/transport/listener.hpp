// A listener accepts connections, performs handshakes within the limits of admission.hpp, and gives the caller the connections
// whose peer has the job's key. The TLS session checks the key (rendezvous/identity/openssl/tls_session.cpp).
// Transport::listen() (transport.hpp) creates a listener.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>

#include "common/system/descriptor.hpp"
#include "rendezvous/identity/tls.hpp"
#include "rendezvous/transport/connection.hpp"
#include "rendezvous/transport/shared.hpp"

namespace ddprun {

// A range of ports, including both ends. If both ends are 0, the kernel chooses a port.
struct ListenPorts {
  std::uint16_t low = 0;
  std::uint16_t high = 0;
};

struct ListenOptions {
  std::string address;     // --local-addr, a numeric address; if empty, all IPv4 and IPv6 addresses
  std::uint16_t port = 0;  // 0: a free port of `range` is used
  ListenPorts range{};     // the range from which a free port is taken
  // kNone: opens no port. Before take_port(), the listener serves only connections from adopt().
  enum class Port { kOpen, kNone } open = Port::kOpen;
  // Called for a peer of another job. Returns true if that job's agent now serves the connection. `fd` and `hello` are valid
  // only during the call.
  std::function<bool(const ShortRunDigest& run, int fd, std::string_view hello)> hand_over;
  // Called for a peer that does not use TLS, with the bytes received from it. Returns true if the callee has duplicated the
  // socket and serves the peer from now on.
  std::function<bool(int fd, std::string_view bytes)> take_foreign;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual boost::asio::ip::tcp::endpoint local() const = 0;
  // Closes the port. Handshakes in progress continue.
  virtual void close_port() = 0;
  // Returns the listening socket, and no longer owns it; empty if the port is not open.
  virtual Descriptor release_port() = 0;
  // Starts to accept connections from `port`, a socket that already listens.
  virtual void take_port(Descriptor port) = 0;
  // Serves a connection that another agent of this host has accepted. `hello` contains the bytes that the other agent has read
  // from the connection.
  virtual void adopt(Descriptor connection, std::string_view hello) = 0;
  virtual std::size_t unauthenticated() const = 0;
};

// `on_member` is called for each authenticated connection. When the result is destroyed, its port and all unauthenticated
// connections are closed. Throws UsageError if it can't listen on that address or port.
std::shared_ptr<Listener> make_listener(std::shared_ptr<TransportShared> shared, ListenOptions options,
                                        std::function<void(std::shared_ptr<Connection>)> on_member);

}  // namespace ddprun
