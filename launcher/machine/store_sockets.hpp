// Where the store of a round's scripts listens: loopback on one machine, and the addresses at which the round's nodes reach
// this one on many. launcher/agent/master_endpoint.hpp opens the sockets before the workers start, so that nobody knocks in
// vain, and gives them to the guardian, which starts the store at the first knock.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ddprun {

struct StorePlace {
  std::string master_addr;  // MASTER_ADDR
  int port = 0;
  bool many_machines = false;
  std::string own_address{};  // where other nodes reach this one; may be empty
};

// Numbers, of which some may not be this machine's. Empty: all addresses, since nothing better is known.
// `beside`: the addresses of the interface that has own_address.
std::vector<std::string> addresses_of_store(const StorePlace& place, const std::vector<std::string>& beside);

// The same, with `beside` looked up on this machine.
std::vector<std::string> addresses_of_store(const StorePlace& place);

// Listening sockets that do not block. Closes them.
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

// Throws UsageError when another program listens there.
ListeningSockets open_store_sockets(const StorePlace& place);

}  // namespace ddprun
