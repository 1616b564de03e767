// Each way to write HOST:PORT, and what is none.
#include "launcher/options/host_and_port.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

std::string read(std::string_view text) {
  const auto there = parse_host_and_port(text);
  if (!there) return "none";
  return there->host + "|" + (there->port ? std::to_string(*there->port) : "no port");
}

TEST(HostAndPort, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(read("node1"), "node1|no port");
  EXPECT_EQ(read(" node1:29400 "), "node1|29400");
  EXPECT_EQ(read("10.0.0.5:0"), "10.0.0.5|0");
  EXPECT_EQ(read("[fe80::1]"), "fe80::1|no port");
  EXPECT_EQ(read("[fe80::1]:65535"), "fe80::1|65535");
  EXPECT_EQ(read("fe80::1"), "fe80::1|no port");
  EXPECT_EQ(read("::1"), "::1|no port");
}

TEST(HostAndPort, WhatIsNoneOfTheseIsRefused) {
  for (const char* text : {"node1:", "node1:x", "node1:65536", "node1:-1", ":29400", "[fe80::1", "[fe80::1]29400", "[]:1"})
    EXPECT_EQ(read(text), "none") << text;
}

}  // namespace
}  // namespace ddprun
