// Connecting: resolves a name, tries every address, shakes hands, and tries again while that can help. Transport::connect()
// (transport.hpp) calls it. A failure is the most telling one of the last round of attempts.
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
  std::chrono::milliseconds patience{30000};  // how long to try again while nobody answers at the port
  std::chrono::milliseconds attempt{5000};    // the limit for one address: TCP, and then the handshake
};

struct ConnectFailure {
  enum class Kind {
    kUnresolvable,
    kBadLocalAddress,
    kRefused,      // nobody listens
    kUnreachable,  // no route, or no answer at all
    kSilent,       // the port is open, but nobody speaks
    kLost,         // closed in the middle of the handshake
    kNotDdprun,    // another program answers
    kWrongToken,
    kWrongRunId,
    kWrongVersion,
    kReflected,  // this agent dialled itself
    kCancelled,
  };
  Kind kind = Kind::kCancelled;
  std::string message;  // for people: what was expected, what was found, what to do
};

// A connection, or the reason why there is none. (Not a variant: GCC 12 then warns wrongly of uninitialized memory in
// asio::co_spawn.)
struct ConnectResult {
  ConnectResult() = default;
  ConnectResult(std::shared_ptr<Connection> opened) : connection(std::move(opened)) {}  // NOLINT(google-explicit-constructor)
  ConnectResult(ConnectFailure why) : failure(std::move(why)) {}                        // NOLINT(google-explicit-constructor)

  std::shared_ptr<Connection> connection;
  ConnectFailure failure;  // when there is no connection
};

// Tries until a connection is open, the peer refuses for a reason that waiting does not change, or `patience` ends. An Asio
// cancellation ends it at once with kCancelled.
boost::asio::awaitable<ConnectResult> run_connector(std::shared_ptr<TransportShared> shared, ConnectOptions options);

}  // namespace ddprun
