// The clients of the scripts' store that come to the port at which the nodes meet, where that port is MASTER_PORT as well: a
// static job whose agent serves the store. The agent alone listens there, for the whole job. So a node can join at any time,
// while a round runs and between two rounds. An agent begins with TLS, a client of the store with the number of a query. The
// first byte tells which one it is.
//
// Two processes cannot share such a port. With two listening sockets the kernel gives each connection to either of them. The
// store cannot be the one that listens, since it lives as long as a round; then nobody could join between two rounds.
//
// While a round runs, this class passes its clients to the store's process, through a Unix socket. The process takes them from
// there as from a listening socket. A client that comes between two rounds waits here for the store of the next one: the other
// nodes may have started their workers before this node. JobLink owns an object of this class.
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

  // A round was released whose store will be here. Before that no client has a reason to come.
  void expect() { expected_ = true; }
  // The store of the round is on another node, or in rank 0's process.
  void refuse();
  // A client has connected and sent these bytes. True: it is passed on or waits, and the caller closes its own descriptor.
  bool take(int fd, std::string_view bytes);
  // The store of a new round: returns the socket from which its process takes clients. Only clients of these addresses of this
  // machine are passed on; none given: all are.
  ListeningSockets open(const std::vector<std::string>& addresses);

 private:
  struct Client {
    Descriptor connection;
    std::string bytes;
  };

  bool is_for_store(int fd) const;
  void pass_on();

  boost::asio::posix::stream_descriptor store_;
  std::vector<std::string> addresses_;
  std::deque<Client> waiting_;
  bool expected_ = false;
  bool is_full_ = false;  // the process has not taken the earlier ones yet
};

}  // namespace ddprun
