// Tests that other programs and other agents cannot use a master port that an agent holds.
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
#include "launcher/tcp_store/store_sockets.hpp"

namespace ddprun {
namespace {

// Acts as a server of another program, on a port that the kernel has chosen.
class ListeningProgram {
 public:
  ListeningProgram() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~ListeningProgram() { ::close(fd_); }
  ListeningProgram(const ListeningProgram&) = delete;
  ListeningProgram& operator=(const ListeningProgram&) = delete;
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

TEST(HeldPort, APortInUseIsReportedWithAHint) {
  const ListeningProgram other;
  EXPECT_EQ(port_error_of(other.port()),
            "master port " + std::to_string(other.port()) +
                " is in use by another program; choose another port with --master-port, or a free one with --master-port 0 or "
                "--standalone");
}

TEST(HeldPort, AHeldPortIsRefusedUntilReleased) {
  int port = 0;
  {
    const HeldPort first = HeldPort::any();
    port = first.port();
    EXPECT_NE(port_error_of(port).find("is held by another ddprun on this machine; choose another port with --master-port"),
              std::string::npos);
  }
  EXPECT_EQ(port_error_of(port), "no error");
}

TEST(HeldPort, ATakenDefaultPortIsReplaced) {
  const ListeningProgram other;
  EXPECT_NE(HeldPort::of(other.port(), PortNeed::kIfFree).port(), other.port());
  EXPECT_THROW(HeldPort::of(other.port(), PortNeed::kExactly), UsageError);
  const int free = HeldPort::any().port();
  EXPECT_EQ(HeldPort::of(free, PortNeed::kIfFree).port(), free);
}

// Tries to listen on `port` with SO_REUSEADDR, like most servers. Returns 0 or the errno.
int listen_error_at(int port) {
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

TEST(HeldPort, WorkersCanListenOnAHeldPort) {
  const HeldPort held = HeldPort::any();
  EXPECT_EQ(listen_error_at(held.port()), 0);
}

// Between two rounds no store listens on the port. If the agent did not reserve the port, another program could use it, and
// the job would end.
TEST(HeldPort, AgentStorePortExcludesOtherServers) {
  HeldPort held = HeldPort::any();
  held.admit(PortListener::kAgentsStore);
  EXPECT_EQ(listen_error_at(held.port()), EADDRINUSE);
  // The first two stores listen on one address each, and the last store listens on all addresses.
  for (const char* name : {"127.0.0.1", "localhost", "some-name"}) {
    EXPECT_FALSE(open_store_sockets({.master_addr = name, .port = held.port()}).empty()) << name;
    EXPECT_EQ(listen_error_at(held.port()), EADDRINUSE) << name;
  }
  EXPECT_NE(port_error_of(held.port()).find("held by another ddprun"), std::string::npos);
  held.admit(PortListener::kRank0);
  EXPECT_EQ(listen_error_at(held.port()), 0);
}

// Any user can bind the abstract socket name that stands for a port. If only the name is bound, a job must still be able to
// use the port.
TEST(HeldPort, ANameWithoutItsPortIsIgnored) {
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
    EXPECT_EQ(listen_error_at(port), 0);
    EXPECT_NE(port_error_of(port).find("held by another ddprun"), std::string::npos);
  }
  ::close(squatter);
}

TEST(HeldPort, DescriptorExhaustionIsNotReportedAsTakenPort) {
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
  EXPECT_NE(text.find("raise the limit on open file descriptors"), std::string::npos) << text;
}

}  // namespace
}  // namespace ddprun
