// Opens the port at which a listener accepts connections. listener.cpp uses it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/transport/listener.hpp"

namespace ddprun {

// Returns a bound and listening socket at options.address. If that address is empty, the socket listens at all IPv6 and IPv4
// addresses, or at all IPv4 addresses if the machine has no IPv6. If options.open is kNone, the result is not open. Throws
// UsageError with the address, the port and the reason.
boost::asio::ip::tcp::acceptor open_port(boost::asio::io_context& io, const ListenOptions& options);

}  // namespace ddprun
