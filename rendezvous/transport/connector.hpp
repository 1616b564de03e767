// Opens a connection to another agent: resolves the name, tries every address, performs the handshake, and retries failures
// that may be temporary. Transport::connect() (transport.hpp) calls it. If the attempts at all addresses fail, it tries all
// addresses again. When it gives up, it reports the failure of the attempt that made the most progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "rendezvous/transport/connection.hpp"
#include "rendezvous/transport/shared.hpp"

namespace ddprun {

struct ConnectOptions {
  std::string host;  // a name or a numeric address; all addresses of a name are tried
  std::uint16_t port = 0;
  std::string local_address;                  // --local-addr
  std::chrono::milliseconds patience{30000};  // how long to retry after temporary failures
  std::chrono::milliseconds attempt{5000};    // limit for one attempt with one address, including TLS
};

struct ConnectFailure {
  enum class Kind {
    kUnresolvable,
    kBadLocalAddress,
    kRefused,      // no process listens on the port
    kUnreachable,  // no route, or no answer to TCP packets
    kSilent,       // the port is open, but the peer sends no data
    kLost,         // the connection was closed during the handshake
    kNotDdprun,    // another program answers
    kWrongToken,
    kWrongRunId,
    kWrongVersion,
    kReflected,  // this agent has connected to itself
    kCancelled,
  };
  Kind kind = Kind::kCancelled;
  std::string message;  // text for users: what was expected, what was found, what to do
};

// A connection, or the reason why it could not be opened. We do not use std::variant, because GCC 12 then gives a false warning
// about uninitialized memory in asio::co_spawn.
struct ConnectResult {
  ConnectResult() = default;
  ConnectResult(std::shared_ptr<Connection> opened) : connection(std::move(opened)) {}  // NOLINT(google-explicit-constructor)
  ConnectResult(ConnectFailure why) : failure(std::move(why)) {}                        // NOLINT(google-explicit-constructor)

  std::shared_ptr<Connection> connection;
  ConnectFailure failure;  // valid if `connection` is nullptr
};

// Retries until a connection is open, `patience` ends, or the peer refuses for a permanent reason. An Asio cancellation ends
// the attempts immediately with kCancelled.
boost::asio::awaitable<ConnectResult> run_connector(std::shared_ptr<TransportShared> shared, ConnectOptions options);

}  // namespace ddprun
