// Opens the port at which a listener accepts. listener.cpp uses it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/transport/listener.hpp"

namespace ddprun {

// A bound and listening socket: at options.address, or at all IPv6 and IPv4 addresses, or at all IPv4 addresses where there is
// no IPv6. It is closed when options ask for no port. Throws UsageError saying which address and port, and why not.
boost::asio::ip::tcp::acceptor open_port(boost::asio::io_context& io, const ListenOptions& options);

}  // namespace ddprun
