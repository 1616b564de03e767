// Passes clients of the scripts' store from the agent's port to the store's process. In a static job whose agent serves the
// store, nodes meet at MASTER_PORT, and scripts look for their store there as well. Only the agent listens there, for the whole
// job. So a node can join at any time, during a round and between two rounds. The first byte of a connection shows what it is.
// An agent begins with a TLS record (0x15 or 0x16), a store client with its first query (VALIDATE, 0).
//
// Two processes cannot share this port: with two listening sockets, the kernel gives each connection to either of them. The
// store cannot be the only listener: it lives as long as one round, so no node could join between two rounds.
//
// During a round, this class sends the descriptor of each client to the store's process through a Unix socket. The process
// reads that socket in place of a listening socket. A client that comes between two rounds waits here for the next store. Other
// nodes may start their workers before this one does. JobLink owns an object of this class.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/machine/store_sockets.hpp"

namespace ddprun {

class StoreClients {
 public:
  explicit StoreClients(boost::asio::io_context& io) : store_(io) {}

  // Call it when a round was released whose store may be on this node. Before the first call, clients are refused.
  void expect();
  // Call it if the round's store is on another node or in rank 0's process. Closes the waiting clients.
  void refuse();
  // Call it when a peer has connected and sent `bytes`. Returns true if the client is passed on or waits; the caller then
  // closes its own descriptor.
  bool take(int fd, std::string_view bytes);
  // Opens the store of a new round. Returns the socket from which its process receives clients. Only connections to `addresses`
  // of this machine are passed on; empty: all connections.
  ListeningSockets open(const std::vector<std::string>& addresses);

 private:
  struct Client {
    Descriptor connection;
    std::string bytes;
  };

  bool is_for_store(int fd) const;
  void pass_on();
  void pass_on_when_there_is_room();

  boost::asio::posix::stream_descriptor store_;
  std::vector<std::string> addresses_;
  std::deque<Client> waiting_;
  bool expected_ = false;
  bool is_full_ = false;  // the socket is full of clients that the process has not received yet
};

}  // namespace ddprun
