// Tests how the value of --hosts is read, and which values are refused.
#include "launcher/hosts/host_list.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

std::string refusal_of(std::string_view text) {
  try {
    parse_hosts(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing is refused";
}

TEST(HostList, ReadsNamesUsersAddressesAndCounts) {
  EXPECT_EQ(parse_hosts("a"), (std::vector<Host>{{"a", "a", std::nullopt}}));
  EXPECT_EQ(parse_hosts("a, bob@b.example:4,10.0.0.7:1"),
            (std::vector<Host>{{"a", "a", std::nullopt}, {"bob@b.example", "b.example", 4}, {"10.0.0.7", "10.0.0.7", 1}}));
  EXPECT_EQ(parse_hosts("[fd00::7]:2,bob@[fe80::1%eth0]"),
            (std::vector<Host>{{"fd00::7", "fd00::7", 2}, {"bob@fe80::1%eth0", "fe80::1%eth0", std::nullopt}}));
}

TEST(HostList, RefusesOtherValuesWithOneLine) {
  EXPECT_EQ(refusal_of("a,,b"),
            "--hosts: expected HOST[:N],HOST[:N],... without an empty entry (entry 2 is empty), but got 'a,,b'");
  EXPECT_NE(refusal_of("").find("entry 1 is empty"), std::string::npos);
  EXPECT_NE(refusal_of("a,").find("entry 2 is empty"), std::string::npos);
  for (const char* count : {"a:0", "a:-1", "a:x", "a:", "a:4097", "a:1.5", "[fd00::7]:0"})
    EXPECT_NE(refusal_of(count).find("a number of workers N from 1 to 4096"), std::string::npos) << count;
  for (const char* name : {"-oProxyCommand=x", "a b", "a/b", "$(x)", "@a", "bob@", "a;b", "a'b", ":4"})
    EXPECT_NE(refusal_of(name).find("the name or address of a machine"), std::string::npos) << name;
  EXPECT_NE(refusal_of("fd00::7").find("an IPv6 address in brackets"), std::string::npos);
  EXPECT_NE(refusal_of("[fd00::7").find("[ADDRESS]:N"), std::string::npos);
  EXPECT_NE(refusal_of("a,b:2,A:4").find("the host 'A' occurs twice"), std::string::npos);
  EXPECT_NE(refusal_of("a,bob@a").find("occurs twice"), std::string::npos);
}

TEST(HostList, LimitsTheNumberOfHosts) {
  std::string text = "h0";
  for (std::size_t i = 1; i <= kMaxHosts; ++i) text += ",h" + std::to_string(i);
  EXPECT_NE(refusal_of(text).find("at most 512 hosts"), std::string::npos);
}

}  // namespace
}  // namespace ddprun
