#include "rendezvous/transport/transport.hpp"

#include <utility>

namespace ddprun {

Transport::Transport(boost::asio::io_context& io, const TlsCredentials& credentials, const TransportLimits& limits,
                     std::function<void(const std::string&)> log)
    : shared_(std::make_shared<TransportShared>(io, derive_keys(credentials), credentials.protocol_version, limits,
                                                std::move(log))) {}

Transport::~Transport() {
  shared_->names.reset();
}

std::shared_ptr<Listener> Transport::listen(ListenOptions options, std::function<void(std::shared_ptr<Connection>)> on_member) {
  return make_listener(shared_, std::move(options), std::move(on_member));
}

boost::asio::awaitable<ConnectResult> Transport::connect(ConnectOptions options) {
  return run_connector(shared_, std::move(options));
}

}  // namespace ddprun
