// Tests connections to the agent's port. The agent passes store clients to the store of the current round, or keeps them until
// the next store opens. The agent must recognize connections of other programs.
#include "launcher/network/store_clients.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/passing/passed_descriptor.hpp"

namespace ddprun {
namespace {

using boost::asio::ip::tcp;

constexpr std::string_view kQuery("\0abcd", 5);  // VALIDATE
constexpr std::string_view kPing("\x0d", 1);

class Clients : public testing::Test {
 protected:
  // Returns the accepted end of a new connection. Both ends have the address 127.0.0.1.
  int connection() {
    tcp::socket caller(io_);
    caller.connect(listener_.local_endpoint());
    callers_.push_back(std::move(caller));
    accepted_.push_back(listener_.accept());
    return accepted_.back().native_handle();
  }
  // Returns the first bytes that the next client has sent to the store, or "-" if the store receives no client.
  static std::string next(const ListeningSockets& store) {
    const auto passed = receive_passed_descriptor(store.at(0).get());
    return passed && passed->descriptor.get() >= 0 ? passed->bytes : "-";
  }

  boost::asio::io_context io_;
  tcp::acceptor listener_{io_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::vector<tcp::socket> callers_;
  std::vector<tcp::socket> accepted_;
  StoreClients clients_{io_};
};

TEST_F(Clients, ArePassedOnOrWaitForTheNextStore) {
  EXPECT_FALSE(clients_.take(connection(), kQuery)) << "no round was released";
  clients_.expect();
  EXPECT_TRUE(clients_.take(connection(), kQuery));
  {
    const ListeningSockets store = clients_.open({});
    EXPECT_EQ(next(store), kQuery);
    EXPECT_EQ(next(store), "-");
    EXPECT_TRUE(clients_.take(connection(), kPing));
    EXPECT_EQ(next(store), kPing);
  }
  EXPECT_TRUE(clients_.take(connection(), kPing)) << "its store is gone, and another round may come";
  const ListeningSockets store = clients_.open({});
  EXPECT_EQ(next(store), kPing);
}

TEST_F(Clients, OfANewRoundAvoidTheOldStore) {
  const ListeningSockets last = clients_.open({});
  clients_.expect();
  EXPECT_TRUE(clients_.take(connection(), kPing));
  EXPECT_EQ(next(last), "-");
  const ListeningSockets store = clients_.open({});
  EXPECT_EQ(next(store), kPing);
}

// Limits the number of open files while the object exists.
class OpenFiles {
 public:
  explicit OpenFiles(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit other{std::min(most, before_.rlim_max), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &other);
  }
  ~OpenFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

 private:
  rlimit before_{};
};

TEST_F(Clients, WaitingOnesUseFewDescriptors) {
  const int fd = connection();
  clients_.expect();
  {
    const OpenFiles limit(256);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(clients_.take(fd, kPing));
  }
  const ListeningSockets store = clients_.open({});
  int received = 0;
  while (next(store) != "-") ++received;
  EXPECT_EQ(received, 256 / 4);
}

TEST_F(Clients, AllReachASlowStore) {
  const OpenFiles limit(4096);
  const ListeningSockets store = clients_.open({});
  constexpr int kMany = 400;  // together, the data of these clients exceeds the buffer of the socket
  const int fd = connection();
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(clients_.take(fd, std::string(2000, '\0')));
  int received = 0;
  while (received < kMany) {
    if (next(store) != "-") {
      ++received;
    } else {
      io_.restart();
      ASSERT_EQ(io_.run_one_for(std::chrono::minutes(1)), 1U) << received;
    }
  }
}

// If each client waited separately, a single free slot in the socket's buffer would wake all of them.
TEST_F(Clients, OfAFullSocketShareOneWait) {
  const OpenFiles limit(4096);
  const ListeningSockets store = clients_.open({});
  const int fd = connection();
  constexpr int kMany = 400;
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(clients_.take(fd, std::string(2000, '\0')));
  int received = 0;
  while (next(store) != "-") ++received;
  ASSERT_LT(received, kMany);
  io_.restart();
  EXPECT_EQ(io_.poll_one(), 1U);
  EXPECT_EQ(io_.poll(), 0U);
}

TEST_F(Clients, OfAFullSocketReachTheNextStore) {
  const OpenFiles limit(4096);
  const int fd = connection();
  {
    const ListeningSockets store = clients_.open({});
    for (int i = 0; i < 400; ++i) ASSERT_TRUE(clients_.take(fd, std::string(2000, '\0')));
  }
  clients_.expect();
  const ListeningSockets store = clients_.open({});
  EXPECT_NE(next(store), "-");
}

TEST_F(Clients, ArePassedOnWithoutUserTimeout) {
  const ListeningSockets store = clients_.open({});
  const int fd = connection();
  const int timeout = 5000;
  ASSERT_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout), 0);
  ASSERT_TRUE(clients_.take(fd, kPing));
  const auto passed = receive_passed_descriptor(store.at(0).get());
  ASSERT_TRUE(passed);
  int left = -1;
  socklen_t size = sizeof left;
  ASSERT_EQ(::getsockopt(passed->descriptor.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &left, &size), 0);
  EXPECT_EQ(left, 0);
}

TEST_F(Clients, OfOtherProtocolsOrAddressesAreRefused) {
  clients_.expect();
  EXPECT_FALSE(clients_.take(connection(), "GET / HTTP/1.1"));
  EXPECT_FALSE(clients_.take(connection(), ""));
  {
    const ListeningSockets store = clients_.open({"127.0.0.1"});
    EXPECT_TRUE(clients_.take(connection(), kQuery));
    EXPECT_EQ(next(store), kQuery);
  }
  const ListeningSockets store = clients_.open({"10.1.2.3"});
  EXPECT_FALSE(clients_.take(connection(), kQuery));
  clients_.refuse();
  EXPECT_FALSE(clients_.take(connection(), kQuery)) << "the store is on another node";
}

// The addresses of a store are known only when it opens. Then the connections of clients that wait at a different address must
// be closed.
TEST_F(Clients, WaitingAtAnotherAddressAreClosed) {
  clients_.expect();
  EXPECT_TRUE(clients_.take(connection(), kQuery));
  EXPECT_EQ(next(clients_.open({"10.1.2.3"})), "-");
  EXPECT_EQ(next(clients_.open({})), "-");
}

TEST_F(Clients, WaitingForAStoreElsewhereAreClosed) {
  clients_.expect();
  EXPECT_TRUE(clients_.take(connection(), kQuery));
  clients_.refuse();
  EXPECT_EQ(next(clients_.open({})), "-");
}

}  // namespace
}  // namespace ddprun
