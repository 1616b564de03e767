// A held master port is nobody else's: not another program's, and not another ddprun's.
#include "launcher/machine/ports.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

// A listener on a port that the kernel picks, as another program would have.
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

TEST(HeldPort, WorkersCanListenOnIt) {
  const HeldPort held = HeldPort::any();
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(held.port()));
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd, 1), 0);
  ::close(fd);
}

}  // namespace
}  // namespace ddprun
