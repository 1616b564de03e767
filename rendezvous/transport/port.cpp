#include "rendezvous/transport/port.hpp"

#include <unistd.h>

#include <boost/asio/ip/v6_only.hpp>
#include <utility>

#include "common/base/error.hpp"
#include "rendezvous/transport/close_on_exec.hpp"

namespace ddprun {
namespace {

using boost::asio::ip::tcp;

tcp::acceptor open_at(boost::asio::io_context& io, const tcp::endpoint& endpoint, boost::system::error_code& error) {
  tcp::acceptor acceptor(io);
  open_close_on_exec(acceptor, endpoint.protocol(), error);
  if (error) return acceptor;
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (endpoint.address().is_v6() && endpoint.address().is_unspecified()) {
    boost::system::error_code ignored;
    acceptor.set_option(boost::asio::ip::v6_only(false), ignored);
  }
  acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  return acceptor;
}

// Opens a free port of the range. Each process starts its search at a different port, so that two processes rarely try the
// same port.
tcp::acceptor open_one_of(boost::asio::io_context& io, ListenOptions options) {
  const ListenPorts range = std::exchange(options.range, {});
  const int size = range.high - range.low + 1;
  const auto first = static_cast<int>((::getpid() * 6007LL) % size);
  for (int i = 0; i < size; ++i) {
    options.port = static_cast<std::uint16_t>(range.low + (first + i) % size);
    try {
      return open_port(io, options);
    } catch (const UsageError&) {
      if (i + 1 == size) break;
    }
  }
  throw UsageError("--port-range: this node cannot listen on any port from " + std::to_string(range.low) + " to " +
                   std::to_string(range.high) + "; use a larger range, or stop the programs that use these ports (ss -ltnp)");
}

}  // namespace

tcp::acceptor open_port(boost::asio::io_context& io, const ListenOptions& options) {
  boost::system::error_code error;
  std::string where = "port " + std::to_string(options.port);
  if (options.open == ListenOptions::Port::kNone) return tcp::acceptor(io);
  if (options.port == 0 && options.range.low > 0) return open_one_of(io, options);
  if (!options.address.empty()) {
    const auto address = boost::asio::ip::make_address(options.address, error);
    if (error) {
      throw UsageError("--local-addr " + options.address + " is not an IP address: use an address of this machine (ip addr)");
    }
    where = options.address + " " + where;
    tcp::acceptor acceptor = open_at(io, {address, options.port}, error);
    if (!error) return acceptor;
  } else {
    tcp::acceptor acceptor = open_at(io, {tcp::v6(), options.port}, error);
    if (!error) return acceptor;
    if (error != boost::asio::error::address_in_use && error != boost::asio::error::access_denied) {
      acceptor = open_at(io, {tcp::v4(), options.port}, error);
      if (!error) return acceptor;
    }
  }
  throw UsageError("cannot listen on " + where + ": " + error.message() +
                   ". Choose another port or address, or stop the program that uses it (ss -ltnp)");
}

}  // namespace ddprun
