// Tests the parser of HOST:PORT with every valid form and with invalid texts.
#include "launcher/options/host_and_port.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

std::string read(std::string_view text) {
  const auto there = parse_host_and_port(text);
  if (!there) return "none";
  return there->host + "|" + (there->port ? std::to_string(*there->port) : "no port");
}

TEST(HostAndPort, ParsesUsualForms) {
  EXPECT_EQ(read("node1"), "node1|no port");
  EXPECT_EQ(read(" node1:29400 "), "node1|29400");
  EXPECT_EQ(read("10.0.0.5:0"), "10.0.0.5|0");
  EXPECT_EQ(read("[fe80::1]"), "fe80::1|no port");
  EXPECT_EQ(read("[fe80::1]:65535"), "fe80::1|65535");
  EXPECT_EQ(read("fe80::1"), "fe80::1|no port");
  EXPECT_EQ(read("::1"), "::1|no port");
  EXPECT_EQ(read("fe80::1:2"), "fe80::1:2|no port");
  EXPECT_EQ(read("2001:db8:0:0:0:0:0:1234"), "2001:db8:0:0:0:0:0:1234|no port");
  EXPECT_EQ(read("fe80::1%eth0"), "fe80::1%eth0|no port");
  EXPECT_EQ(read("[fe80::1%eth0]:7"), "fe80::1%eth0|7");
}

// Regression test: "::1:29400" was parsed as a host name, and the node tried for ten minutes to resolve it.
TEST(HostAndPort, AnIpv6AddressWithAPortNeedsBrackets) {
  for (const char* text : {"::1:29400", "fd00::7:29499", "fd00::7:2949", "fe80::1%lo:29499", "2001:db8::5:65535"})
    EXPECT_EQ(read(text), "none") << text;
  EXPECT_EQ(with_brackets("fd00::7:29499"), "[fd00::7]:29499");
  EXPECT_EQ(with_brackets(" fe80::1%lo:29499"), "[fe80::1%lo]:29499");
  EXPECT_EQ(with_brackets("host:29499"), std::nullopt);
  EXPECT_EQ(with_brackets("[::1]:29499"), std::nullopt);
  for (const char* text : {"a:b:7", "::g", "1:2:3", "[host]:7", "fe80::1%"}) EXPECT_EQ(read(text), "none") << text;
}

TEST(HostAndPort, OtherTextIsRefused) {
  for (const char* text : {"node1:", "node1:x", "node1:65536", "node1:-1", ":29400", "[fe80::1", "[fe80::1]29400", "[]:1"})
    EXPECT_EQ(read(text), "none") << text;
}

}  // namespace
}  // namespace ddprun
