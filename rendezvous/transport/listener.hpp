// Listening: accepts connections, performs handshakes within the limits of admission.hpp, and passes on those whose peer has
// the job's key. The TLS session (rendezvous/identity/openssl/session.cpp) decides that. Transport::listen() (transport.hpp)
// makes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/identity/tls.hpp"
#include "rendezvous/transport/connection.hpp"
#include "rendezvous/transport/shared.hpp"

namespace ddprun {

// A range of ports, both ends included. Zero: the kernel chooses.
struct ListenPorts {
  std::uint16_t low = 0;
  std::uint16_t high = 0;
};

struct ListenOptions {
  std::string address;     // --local-addr, a numeric address; empty: every address, IPv4 and IPv6
  std::uint16_t port = 0;  // 0: a free port
  ListenPorts range{};     // the range from which a free port is taken
  // kNone: until take_port(), the listener serves only connections from adopt().
  enum class Port { kOpen, kNone } open = Port::kOpen;
  // Called for a peer of another job on this port; true if that job's agent has taken it. Hello and socket are valid only
  // during the call.
  std::function<bool(const ShortRunDigest& run, int fd, std::string_view hello)> hand_over;
  // Called for a peer that does not speak TLS, with the bytes received from it. True: the callee has duplicated the socket and
  // serves the peer from now on.
  std::function<bool(int fd, std::string_view bytes)> take_foreign;
};

class Listener {
 public:
  virtual ~Listener() = default;  // closes the port and every connection without authentication
  virtual boost::asio::ip::tcp::endpoint local() const = 0;
  // Closes the port. Handshakes in progress continue.
  virtual void close_port() = 0;
  // Gives the listening socket to the caller, who must close it; -1 if there is none.
  virtual int release_port() = 0;
  // Accepts from a socket that already listens. Takes ownership of the descriptor.
  virtual void take_port(int fd) = 0;
  // Takes over a connection that another agent of this host has accepted, with the bytes that it has read. Takes ownership of
  // the descriptor.
  virtual void adopt(int fd, std::string_view hello) = 0;
  virtual std::size_t unauthenticated() const = 0;
};

// Throws UsageError if it can't listen at that address or port.
std::unique_ptr<Listener> make_listener(std::shared_ptr<TransportShared> shared, ListenOptions options,
                                        std::function<void(std::shared_ptr<Connection>)> on_member);

}  // namespace ddprun
