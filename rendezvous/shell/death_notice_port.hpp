// Opens the UDP port at which a node receives a death notice from the guardian of its coordinator's node. Also defines the
// encoding of a death notice. The node creates a random key, and its Hello sends the key to the coordinator over TLS. The
// coordinator uses the key to compute one death notice for each round, so the notice of one round is not valid for another.
// NodeShell (node_shell.hpp) uses this class.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>

#include "rendezvous/protocol/message.hpp"
#include "rendezvous/transport/listener.hpp"

namespace ddprun::rendezvous {

// Returns the bytes of a death notice. The sender and the receiver both compute these bytes, and the receiver compares them.
std::string death_notice_text(const DeathNoticeKey& key, const RoundId& round);

class DeathNoticePort {
 public:
  // Calls `on_notice` with the round when a valid death notice arrives: its digest proves that the sender has the key. The port
  // is one of `range`, or any port if no range is given. If no port can be opened, port() is 0, and no notice can arrive.
  DeathNoticePort(boost::asio::io_context& io, const ListenPorts& range, std::function<void(const RoundId&)> on_notice);

  std::uint16_t port() const { return port_; }
  const DeathNoticeKey& key() const { return key_; }

 private:
  void open(const boost::asio::ip::udp& protocol, const ListenPorts& range, boost::system::error_code& error);
  void receive();
  void handle_datagram(std::size_t size);

  boost::asio::ip::udp::socket socket_;
  std::function<void(const RoundId&)> on_notice_;
  DeathNoticeKey key_{};
  std::uint16_t port_ = 0;
  std::string buffer_ = std::string(128, '\0');
  boost::asio::ip::udp::endpoint from_;
};

}  // namespace ddprun::rendezvous
