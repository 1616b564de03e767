// Chooses where the store of a round's scripts listens: on loopback for one machine, and on the addresses at which the round's
// nodes reach this one otherwise. launcher/agent/master_endpoint.hpp opens the sockets before the workers start, so that no
// connection is refused. The guardian receives them and starts the store at the first connection.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ddprun {

struct StorePlace {
  std::string master_addr;  // MASTER_ADDR
  int port = 0;
  bool many_machines = false;
  std::string own_address{};  // address at which other nodes reach this one; may be empty
};

// Numeric addresses, some of which may not belong to this machine. Empty means all addresses, if no better choice is known.
// `beside`: the addresses of the interface that has own_address.
std::vector<std::string> addresses_of_store(const StorePlace& place, const std::vector<std::string>& beside);

// The same, with `beside` determined on this machine.
std::vector<std::string> addresses_of_store(const StorePlace& place);

// Owns non-blocking listening sockets and closes them.
class ListeningSockets {
 public:
  ListeningSockets() = default;
  ListeningSockets(ListeningSockets&& other) noexcept : all_(std::exchange(other.all_, {})) {}
  ListeningSockets& operator=(ListeningSockets&& other) noexcept {
    std::swap(all_, other.all_);
    return *this;
  }
  ~ListeningSockets();
  void add(int fd) { all_.push_back(fd); }
  const std::vector<int>& all() const { return all_; }

 private:
  std::vector<int> all_;
};

// Throws UsageError if another program listens there.
ListeningSockets open_store_sockets(const StorePlace& place);

}  // namespace ddprun
