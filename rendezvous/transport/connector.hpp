// Connecting: resolves a name, tries every address, performs the handshake, and retries while that can help.
// Transport::connect() (transport.hpp) calls it. The reported failure is the most informative one of the last round of
// attempts.
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
  std::string host;  // a name or a number; all addresses are tried
  std::uint16_t port = 0;
  std::string local_address;                  // --local-addr
  std::chrono::milliseconds patience{30000};  // how long to retry while no process listens at the port
  std::chrono::milliseconds attempt{5000};    // the limit for one address: TCP, and then the handshake
};

struct ConnectFailure {
  enum class Kind {
    kUnresolvable,
    kBadLocalAddress,
    kRefused,      // no process listens
    kUnreachable,  // no route, or no answer at all
    kSilent,       // the port is open, but no data comes
    kLost,         // closed in the middle of the handshake
    kNotDdprun,    // another program answers
    kWrongToken,
    kWrongRunId,
    kWrongVersion,
    kReflected,  // this agent dialed itself
    kCancelled,
  };
  Kind kind = Kind::kCancelled;
  std::string message;  // for users: what was expected, what was found, what to do
};

// A connection, or the reason why there is none. (Not a variant: GCC 12 then warns wrongly of uninitialized memory in
// asio::co_spawn.)
struct ConnectResult {
  ConnectResult() = default;
  ConnectResult(std::shared_ptr<Connection> opened) : connection(std::move(opened)) {}  // NOLINT(google-explicit-constructor)
  ConnectResult(ConnectFailure why) : failure(std::move(why)) {}                        // NOLINT(google-explicit-constructor)

  std::shared_ptr<Connection> connection;
  ConnectFailure failure;  // set if there is no connection
};

// Retries until a connection is open, the peer refuses for a reason that a wait does not change, or `patience` ends. An Asio
// cancellation ends it immediately with kCancelled.
boost::asio::awaitable<ConnectResult> run_connector(std::shared_ptr<TransportShared> shared, ConnectOptions options);

}  // namespace ddprun
