// Where the guardian of a dead coordinator is heard: a port of datagrams, and what it has to say for each round. The key goes
// to the coordinator with this node's hello, through TLS; from it the coordinator makes one farewell a round, which says
// nothing about those of other rounds. node_shell.hpp owns one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// A farewell as bytes; the same on both sides.
std::string farewell_text(const FarewellKey& key, const RoundId& round);

class FarewellPort {
 public:
  // `on_farewell`: of that round, by who knows the key. Where no port can be had, port() is 0 and nothing is heard.
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
