// A UDP port that receives the farewell from the guardian of a dead coordinator, and the bytes of such a farewell. This node's
// Hello carries the key to the coordinator, through TLS. The coordinator makes one farewell per round from it; a farewell of
// one round proves nothing for another round. node_shell.hpp owns one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// The bytes of a farewell, computed in the same way on both sides.
std::string farewell_text(const FarewellKey& key, const RoundId& round);

class FarewellPort {
 public:
  // Calls `on_farewell` with the round when a farewell proves that its sender knows the key. If no port can be opened, port()
  // is 0 and no farewell is received.
  FarewellPort(boost::asio::io_context& io, std::function<void(const RoundId&)> on_farewell);

  std::uint16_t port() const { return port_; }
  const FarewellKey& key() const { return key_; }

 private:
  void receive();
  void hear(std::size_t size);

  boost::asio::ip::udp::socket socket_;
  std::function<void(const RoundId&)> on_farewell_;
  FarewellKey key_{};
  std::uint16_t port_ = 0;
  std::string buffer_ = std::string(128, '\0');
  boost::asio::ip::udp::endpoint from_;
};

}  // namespace ddprun::rendezvous
