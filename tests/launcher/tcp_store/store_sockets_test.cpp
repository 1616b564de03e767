// Tests on which addresses the store for scripts listens, and the error if the port is already in use.
#include "launcher/tcp_store/store_sockets.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using Addresses = std::vector<std::string>;

TEST(AddressesOfStore, OneMachineUsesLoopback) {
  for (const char* master : {"127.0.0.1", "localhost", "::1"}) {
    EXPECT_EQ(addresses_of_store({.master_addr = master}, {}), (Addresses{"127.0.0.1", "::1"})) << master;
  }
  EXPECT_EQ(addresses_of_store({.master_addr = "10.0.0.1"}, {}), (Addresses{"127.0.0.1", "::1", "10.0.0.1"}));
}

TEST(AddressesOfStore, AHostNameUsesAllAddresses) {
  EXPECT_EQ(addresses_of_store({.master_addr = "host0"}, {}), Addresses());
}

TEST(AddressesOfStore, ManyMachinesUseTheNodeAddress) {
  const StorePlace place{.master_addr = "10.0.0.1", .many_machines = true, .own_address = "10.0.0.1"};
  EXPECT_EQ(addresses_of_store(place, {"10.0.0.1", "fd00::1"}), (Addresses{"127.0.0.1", "::1", "10.0.0.1", "fd00::1"}));
  const StorePlace named{.master_addr = "host0", .many_machines = true, .own_address = "10.0.0.1"};
  EXPECT_EQ(addresses_of_store(named, {}), Addresses()) << "nodes may resolve it differently";
  EXPECT_EQ(addresses_of_store({.master_addr = "host0", .many_machines = true}, {}), Addresses());
}

TEST(StoreSockets, ATakenStorePortIsRefusedWithAHint) {
  const int other = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(other, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(other, 1), 0);
  socklen_t size = sizeof address;
  ::getsockname(other, reinterpret_cast<sockaddr*>(&address), &size);
  try {
    open_store_sockets({.master_addr = "127.0.0.1", .port = ntohs(address.sin_port)});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("--agent-store off"), std::string::npos) << error.what();
  }
  ::close(other);
}

}  // namespace
}  // namespace ddprun
