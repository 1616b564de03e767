// Implements the secure transport between agents: frames over TLS 1.3 with a key that is derived from the job's token. A
// Transport opens listeners (listener.hpp) and connects to other agents (connector.hpp). The agent gets a connection only when
// it is open and authenticated (connection.hpp). Peers without the key are refused, limited in number and logged. The
// transport does not interpret frames. docs/security.md lists its guarantees.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "rendezvous/identity/tls.hpp"
#include "rendezvous/transport/connection.hpp"
#include "rendezvous/transport/connector.hpp"
#include "rendezvous/transport/fault.hpp"
#include "rendezvous/transport/listener.hpp"
#include "rendezvous/transport/shared.hpp"

namespace ddprun {

class Transport {
 public:
  // Opens the TLS module and derives the keys. Throws InternalError if that fails. Calls `log` with lines about bad peers, at a
  // limited rate.
  Transport(boost::asio::io_context& io, const TlsCredentials& credentials, const TransportLimits& limits = {},
            std::function<void(const std::string&)> log = {});
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Opens a listener; see make_listener().
  std::shared_ptr<Listener> listen(ListenOptions options, std::function<void(std::shared_ptr<Connection>)> on_member);

  // Connects to another agent; see run_connector().
  boost::asio::awaitable<ConnectResult> connect(ConnectOptions options);

  const ShortRunDigest& run() const { return shared_->keys->run(); }
  const BadPeerLog& bad_peers() const { return shared_->bad_peers; }

 private:
  std::shared_ptr<TransportShared> shared_;
};

}  // namespace ddprun
