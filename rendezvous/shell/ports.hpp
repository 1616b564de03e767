// Owns the listening ports of one node, and the keys of its job. A node has up to three listeners:
// - If this node is the job's first coordinator, it listens on the port to which all nodes first connect.
// - Each node listens for other nodes, because it may lead later. The first coordinator can use one port for both purposes.
// - A listener that has no port answers `ddprun join`. This command uses a different run id, so the other listeners pass its
//   connections to this listener.
//
// NodeShell (node_shell.hpp) uses this class.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/shell/settings.hpp"
#include "rendezvous/transport/transport.hpp"

namespace ddprun::rendezvous {

class NodePorts {
 public:
  // Opens the ports, sets the addresses in `settings`, and wipes the token in `settings`. `settings` must outlive this object.
  // Calls `on_member` for each connection of another node. Throws UsageError if another program uses a port, and InternalError
  // if the TLS module is missing.
  NodePorts(boost::asio::io_context& io, NodeShellSettings& settings, const std::function<void(const std::string&)>& log,
            std::function<void(const std::shared_ptr<Connection>&)> on_member);

  Transport& transport() { return transport_; }
  // See NodeShell.
  void close_meet_port();
  std::uint16_t port_with_store() const;
  // Closes the ports at which other nodes connect.
  void close();

 private:
  void open_all();
  std::shared_ptr<Listener> open(std::uint16_t port);
  bool take_join(const ShortRunDigest& run, int fd, std::string_view hello);

  boost::asio::io_context& io_;
  NodeShellSettings& settings_;
  std::function<void(const std::shared_ptr<Connection>&)> on_member_;
  InstanceId instance_ = new_instance_id();
  Transport transport_;
  Transport join_transport_;
  std::shared_ptr<Listener> join_listener_;
  std::shared_ptr<Listener> meet_listener_;
  std::shared_ptr<Listener> listener_;
};

}  // namespace ddprun::rendezvous
