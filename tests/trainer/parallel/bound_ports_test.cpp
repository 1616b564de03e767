// Tests bind() while a BoundPorts object exists: port 0 then means a free port of the range.
#include "trainer/parallel/bound_ports.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun::trainer {
namespace {

// A TCP socket that is bound to `port` on loopback; 0 means any port.
class BoundSocket {
 public:
  explicit BoundSocket(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<in_port_t>(port));
    error_ = ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
    socklen_t size = sizeof address;
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = error_ == 0 ? ntohs(address.sin_port) : 0;
  }
  int port() const { return port_; }  // 0 if bind() failed
  int error() const { return error_; }

 private:
  Descriptor socket_;
  int error_ = 0;
  int port_ = 0;
};

TEST(BoundPorts, TakesOnlyPortsOfTheRange) {
  const int low = BoundSocket(0).port();  // free again
  const int high = std::min(low + 19, 65535);
  const BoundPorts bound(BoundPortRange{low, high});
  const BoundSocket first(0), second(0);
  for (const BoundSocket* one : {&first, &second}) {
    EXPECT_GE(one->port(), low);
    EXPECT_LE(one->port(), high);
  }
  EXPECT_NE(first.port(), second.port());
  EXPECT_EQ(bound.problem(), "");
}

TEST(BoundPorts, FailsIfTheRangeIsExhausted) {
  const BoundSocket taken(0);
  {
    const BoundPorts bound(BoundPortRange{taken.port(), taken.port()});
    const BoundSocket none(0);
    EXPECT_EQ(none.error(), EADDRINUSE);
    const std::string range = std::to_string(taken.port()) + "-" + std::to_string(taken.port());
    EXPECT_TRUE(bound.problem().starts_with("--port-range " + range + ": no port is free for Gloo. ")) << bound.problem();
  }
  const BoundSocket any(0);  // without a BoundPorts object, the kernel selects the port
  EXPECT_NE(any.port(), 0);
}

TEST(BoundPorts, NoRangeChangesNothing) {
  const BoundPorts bound(std::nullopt);
  EXPECT_NE(BoundSocket(0).port(), 0);
  EXPECT_EQ(bound.problem(), "");
}

TEST(BoundPorts, ParsesRanges) {
  ASSERT_TRUE(port_range_of("30000-30009"));
  EXPECT_EQ(port_range_of("30000-30009")->low, 30000);
  EXPECT_EQ(port_range_of("30000-30009")->high, 30009);
  for (const char* wrong : {"", "30000", "30000-", "-30009", "30009-30000", "0-5", "65000-65536", "30000-30009x"})
    EXPECT_FALSE(port_range_of(wrong)) << wrong;
}

}  // namespace
}  // namespace ddprun::trainer
