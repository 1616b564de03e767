// Tests Base64 encoding and decoding, and the rejection of invalid Base64 text.
#include "common/base/base64.hpp"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(Base64, MatchesTheRfcVectors) {
  const std::map<std::string, std::string> vectors{{"", ""},
                                                   {"f", "Zg=="},
                                                   {"fo", "Zm8="},
                                                   {"foo", "Zm9v"},
                                                   {"foob", "Zm9vYg=="},
                                                   {"fooba", "Zm9vYmE="},
                                                   {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
}

TEST(Base64, RoundTripsEveryByte) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
}

TEST(Base64, WhatIsNoneIsRefused) {
  for (const char* text : {"A", "AA", "AAA", "A===", "====", "AA=A", "AA A", "AAA\xc3", "Zg==Zg=="}) {
    EXPECT_FALSE(from_base64(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace ddprun
