// Listening: accepts whoever knocks, shakes hands within the limits of admission.hpp, and hands out those that have the job's
// key. Transport::listen() (transport.hpp) makes one.
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

// Both ends belong to it; zero: wherever the kernel takes free ports.
struct ListenPorts {
  std::uint16_t low = 0;
  std::uint16_t high = 0;
};

struct ListenOptions {
  std::string address;     // --local-addr: a number; empty is every address, IPv4 and IPv6
  std::uint16_t port = 0;  // 0: a free one
  ListenPorts range{};     // then one of these
  // kNone: only connections that adopt() brings, until take_port().
  enum class Port { kOpen, kNone } open = Port::kOpen;
  // A peer of another job on this port: true when it was handed over. Its hello and its socket are to be used during the call.
  std::function<bool(const RunDigest& run, int fd, std::string_view hello)> hand_over;
};

class Listener {
 public:
  virtual ~Listener() = default;  // closes the port and every connection that is not authenticated yet
  virtual boost::asio::ip::tcp::endpoint local() const = 0;
  // Closes the port; connections that are shaking hands go on.
  virtual void close_port() = 0;
  // The listening socket, this listener's no more; -1 when it has none. The caller closes it.
  virtual int release_port() = 0;
  // Listens on a socket that is listening already. Takes the descriptor.
  virtual void take_port(int fd) = 0;
  // A connection that another agent of this host has accepted, with what it read of it. Takes the descriptor.
  virtual void adopt(int fd, std::string_view hello) = 0;
  virtual std::size_t unauthenticated() const = 0;
};

// Throws UsageError when the address or port cannot be had.
std::unique_ptr<Listener> make_listener(std::shared_ptr<TransportShared> shared, ListenOptions options,
                                        std::function<void(std::shared_ptr<Connection>)> on_member);

}  // namespace ddprun
