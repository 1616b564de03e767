// Chooses the addresses on which the store of scripts listens in a round, and opens the sockets. On one machine these are
// loopback addresses. In a multi-node job they also include the addresses at which other nodes reach this node.
// master_endpoint.hpp opens the sockets before the workers start, so that no connection is refused. Then the guardian gets the
// sockets and starts the store at the first connection.
#pragma once

#include <string>
#include <vector>

#include "common/system/descriptor.hpp"

namespace ddprun {

struct StorePlace {
  std::string master_addr;  // value of MASTER_ADDR
  int port = 0;
  bool many_machines = false;
  std::string own_address{};  // address at which other nodes reach this node; empty if unknown
};

// Returns numeric addresses. Some of them may not belong to this machine. If the result is empty, the right addresses are
// unknown, and the store must listen on all addresses. `interface_addresses` are all addresses of the interface that has
// own_address.
std::vector<std::string> addresses_of_store(const StorePlace& place, const std::vector<std::string>& interface_addresses);

// This overload determines `interface_addresses` itself.
std::vector<std::string> addresses_of_store(const StorePlace& place);

using ListeningSockets = std::vector<Descriptor>;  // the sockets are non-blocking

// Opens the sockets at addresses_of_store(). Throws UsageError if the port cannot be used, for example because another program
// listens there. Throws InternalError if no file descriptor is free.
ListeningSockets open_store_sockets(const StorePlace& place);

}  // namespace ddprun
