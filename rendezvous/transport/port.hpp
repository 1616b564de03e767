// The port that a listener accepts at. listener.cpp uses it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/transport/listener.hpp"

namespace ddprun {

// Bound and listening: at options.address, or at all addresses of both families where there is IPv6, otherwise of IPv4. Closed
// when options ask for no port. Throws UsageError saying which address and port, and why not.
boost::asio::ip::tcp::acceptor open_port(boost::asio::io_context& io, const ListenOptions& options);

}  // namespace ddprun
