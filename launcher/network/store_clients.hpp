// Passes the clients of a script's store from the agent's port to the process that serves the store. JobLink owns an object of
// this class.
//
// The problem: with static rendezvous the agents meet at MASTER_PORT, and the scripts' store is expected at the same port. Two
// processes cannot share the port: with two listening sockets, the kernel would give each connection to either of them. The
// store's process cannot be the only listener, because it exists for one round only. Between two rounds no node could join.
//
// So only the agent listens on the port, for the whole job. The first byte of a connection distinguishes the peers. An agent
// starts with a TLS record (0x15 or 0x16), and a store client starts with its first query (VALIDATE, 0). During a round this
// class sends the descriptor of each client through a Unix socket to the store's process. The process reads that socket
// instead of a listening socket.
//
// Other nodes may start their workers before this node has a store. A client that connects between two rounds therefore waits
// here for the next store.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/tcp_store/store_sockets.hpp"

namespace ddprun {

class StoreClients {
 public:
  explicit StoreClients(boost::asio::io_context& io) : store_(io) {}

  // Call this when a round was released and its store may be on this node. Clients are refused before the first call.
  void expect();
  // Call this if the round's store is on another node or in rank 0's process. Closes the connections of waiting clients.
  void refuse();
  // Call this when a peer has connected and sent `bytes`. Returns true if the client was passed on or is waiting for the next
  // store. The caller must then close its own descriptor. Returns false if the peer is not a store client or is refused.
  bool take(int fd, std::string_view bytes);
  // Opens the store of a new round. Returns the socket from which the store's process receives clients. Only connections to
  // `addresses` of this machine are passed on; an empty list means all connections.
  ListeningSockets open(const std::vector<std::string>& addresses);

 private:
  struct Client {
    Descriptor connection;
    std::string bytes;
  };

  bool is_for_store(int fd) const;
  void pass_on();
  void pass_on_when_writable();

  boost::asio::posix::stream_descriptor store_;
  std::vector<std::string> addresses_;
  std::deque<Client> waiting_;
  bool expected_ = false;
  bool is_full_ = false;  // the Unix socket is full of clients that the store's process has not received yet
};

}  // namespace ddprun
