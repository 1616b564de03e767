// The secure transport between agents: frames over TLS 1.3 with a key made from the job's token. An agent has one Transport. It
// listens (listener.hpp: the coordinator and its successors) and connects (connector.hpp: all other nodes). A connection is
// open and authenticated when the agent gets it (connection.hpp); other peers are refused, limited and logged. The transport
// does not know the meaning of frames. docs/security.md lists its guarantees.
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
  // Opens the TLS module. Throws InternalError if that is not possible. `log` gets whole lines at a limited rate.
  Transport(boost::asio::io_context& io, const TlsCredentials& credentials, const TransportLimits& limits = {},
            std::function<void(const std::string&)> log = {});
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // See make_listener().
  std::unique_ptr<Listener> listen(ListenOptions options, std::function<void(std::shared_ptr<Connection>)> on_member);

  // See run_connector().
  boost::asio::awaitable<ConnectResult> connect(ConnectOptions options);

  const ShortRunDigest& run() const { return shared_->keys->run(); }
  const BadPeerLog& bad_peers() const { return shared_->bad_peers; }

 private:
  std::shared_ptr<TransportShared> shared_;
};

}  // namespace ddprun
