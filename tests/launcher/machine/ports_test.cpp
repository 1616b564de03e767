// A held master port is unavailable to other programs and to other ddprun processes.
#include "launcher/machine/ports.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "common/base/error.hpp"
#include "launcher/machine/store_sockets.hpp"

namespace ddprun {
namespace {

// A listener on a port that the kernel chooses, like that of another program.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }

 private:
  int fd_;
  int port_ = 0;
};

std::string port_error_of(int port) {
  try {
    const HeldPort held = HeldPort::exactly(port);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(HeldPort, APortInUseIsNamedWithAWayOut) {
  const Listener other;
  EXPECT_EQ(port_error_of(other.port()),
            "master port " + std::to_string(other.port()) +
                " is in use by another program; --master-port takes another one, and --master-port 0 or "
                "--standalone a free one");
}

TEST(HeldPort, APortHeldByAnotherDdprunIsRefusedAndFreeAfterwards) {
  int port = 0;
  {
    const HeldPort first = HeldPort::any();
    port = first.port();
    EXPECT_NE(port_error_of(port).find("is held by another ddprun on this machine; --master-port"), std::string::npos);
  }
  EXPECT_EQ(port_error_of(port), "no error");
}

TEST(HeldPort, ADefaultGivesWayToAFreePortWhenItIsTaken) {
  const Listener other;
  EXPECT_NE(HeldPort::of(other.port(), PortNeed::kIfFree).port(), other.port());
  EXPECT_THROW(HeldPort::of(other.port(), PortNeed::kExactly), UsageError);
  const int free = HeldPort::any().port();
  EXPECT_EQ(HeldPort::of(free, PortNeed::kIfFree).port(), free);
}

// Listens there with SO_REUSEADDR, like most servers. Returns the errno, or 0.
int error_of_a_server_at(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  int error = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  if (error == 0 && ::listen(fd, 1) != 0) error = errno;
  ::close(fd);
  return error;
}

TEST(HeldPort, WorkersCanListenOnIt) {
  const HeldPort held = HeldPort::any();
  EXPECT_EQ(error_of_a_server_at(held.port()), 0);
}

// Nothing listens there between two rounds. Without the hold any local program could take the port then, and the job would end.
TEST(HeldPort, OfTheAgentsStoreItIsNoOtherServers) {
  HeldPort held = HeldPort::any();
  held.let_in(PortListener::kAgentsStore);
  EXPECT_EQ(error_of_a_server_at(held.port()), EADDRINUSE);
  for (const char* name : {"127.0.0.1", "localhost", "some-name"}) {  // at single addresses, and at all of them
    EXPECT_FALSE(open_store_sockets({.master_addr = name, .port = held.port()}).all().empty()) << name;
    EXPECT_EQ(error_of_a_server_at(held.port()), EADDRINUSE) << name;
  }
  EXPECT_NE(port_error_of(held.port()).find("held by another ddprun"), std::string::npos);
  held.let_in(PortListener::kRank0);
  EXPECT_EQ(error_of_a_server_at(held.port()), 0);
}

// Any user can take the name that stands for a port. That alone must not stop a job for which the port is free.
TEST(HeldPort, ANameWithoutItsPortStopsNobody) {
  const int port = HeldPort::any().port();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "ddprun/port/" + std::to_string(port);
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const int squatter = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(::bind(squatter, reinterpret_cast<const sockaddr*>(&address), size), 0);
  {
    const HeldPort held = HeldPort::exactly(port);
    EXPECT_EQ(error_of_a_server_at(port), 0);
    EXPECT_NE(port_error_of(port).find("held by another ddprun"), std::string::npos);
  }
  ::close(squatter);
}

TEST(HeldPort, WithoutDescriptorsTheReasonIsNotAnotherDdprun) {
  const int port = HeldPort::any().port();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  const rlimit one_more{.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  std::string text = "no error";
  try {
    const HeldPort held = HeldPort::exactly(port);
  } catch (const InternalError& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(text.find("raise the limit of descriptors"), std::string::npos) << text;
}

}  // namespace
}  // namespace ddprun
