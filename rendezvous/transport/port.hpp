// Opens the port at which a listener accepts. listener.cpp uses it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/transport/listener.hpp"

namespace ddprun {

// A bound and listening socket: at options.address, or at all IPv6 and IPv4 addresses, or at all IPv4 addresses if there is no
// IPv6. It is closed if the options request no port. Throws UsageError with the address, the port and the reason.
boost::asio::ip::tcp::acceptor open_port(boost::asio::io_context& io, const ListenOptions& options);

}  // namespace ddprun
