// The secure transport between agents: frames over TLS 1.3 with a key made from the job's token. One Transport an agent; it
// listens (the coordinator and its successors) and connects (everybody else). Connections are open and authenticated when the
// agent gets them (transport_connection.hpp); whatever else knocks is refused, bounded and logged here. It knows nothing of
// what frames mean. docs/security.md says what it promises.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "rendezvous/identity/tls.hpp"
#include "rendezvous/transport/connection.hpp"
#include "rendezvous/transport/fault.hpp"
#include "rendezvous/transport/shared.hpp"

namespace ddprun {

struct ListenOptions {
  std::string address;     // --local-addr: a number; empty is every address, IPv4 and IPv6
  std::uint16_t port = 0;  // 0: a free one
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

struct ConnectOptions {
  std::string host;  // a name or a number; all addresses are tried
  std::uint16_t port = 0;
  std::string local_address;                  // --local-addr
  std::chrono::milliseconds patience{30000};  // a port that nobody answers yet is tried again for so long
  std::chrono::milliseconds attempt{5000};    // one address: TCP, and then the handshake
};

struct ConnectFailure {
  enum class Kind {
    kUnresolvable,
    kBadLocalAddress,
    kRefused,      // nobody listens
    kUnreachable,  // no route, or no answer at all
    kSilent,       // the port is open, but nobody speaks
    kLost,         // closed in the middle of the handshake
    kNotDdprun,    // something else answers
    kWrongToken,
    kWrongRunId,
    kWrongVersion,
    kReflected,  // this agent called itself
    kCancelled,
  };
  Kind kind = Kind::kCancelled;
  std::string message;  // for people: what was expected, what was found, what to do
};

// A connection, or why there is none. (No variant: GCC 12 then warns of uninitialized memory in asio::co_spawn, wrongly.)
struct ConnectResult {
  ConnectResult() = default;
  ConnectResult(std::shared_ptr<Connection> opened) : connection(std::move(opened)) {}  // NOLINT(google-explicit-constructor)
  ConnectResult(ConnectFailure why) : failure(std::move(why)) {}                        // NOLINT(google-explicit-constructor)

  std::shared_ptr<Connection> connection;
  ConnectFailure failure;  // when there is no connection
};

class Transport {
 public:
  // Opens the TLS module. Throws InternalError when that is not possible. `log` gets whole lines, already limited in rate.
  Transport(boost::asio::io_context& io, const TlsCredentials& credentials, const TransportLimits& limits = {},
            std::function<void(const std::string&)> log = {});

  // Throws UsageError when the address or port cannot be had.
  std::unique_ptr<Listener> listen(ListenOptions options, std::function<void(std::shared_ptr<Connection>)> on_member);

  // Tries until it is open, the peer refuses for a reason that waiting does not change, or patience ends. Cancellation (asio's)
  // ends it at once with kCancelled.
  boost::asio::awaitable<ConnectResult> connect(ConnectOptions options);

  const RunDigest& run() const { return shared_->keys->run(); }
  const BadPeerLog& bad_peers() const { return shared_->bad_peers; }

 private:
  std::shared_ptr<TransportShared> shared_;
};

}  // namespace ddprun
