// Tests the kind and position of each error inside a JSON string. For random strings, our check must agree with the JSON
// parser.
#include "common/config/string_fault.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace ddprun {
namespace {

using Kind = StringFault::Kind;

void expect_fault(const std::string& text, Kind kind, std::size_t offset) {
  const auto fault = fault_in_string(text, 0);
  ASSERT_TRUE(fault.has_value()) << text;
  EXPECT_EQ(fault->kind, kind) << text;
  EXPECT_EQ(fault->offset, offset) << text;
}

TEST(StringFaults, EachHasItsKindAndOffset) {
  expect_fault("\"ab", Kind::kEndOfText, 3);
  expect_fault("\"ab\\", Kind::kEndOfText, 4);
  expect_fault("\"ab\\u12", Kind::kEndOfText, 7);
  expect_fault("\"ab\nc\"", Kind::kLineEnd, 3);
  expect_fault("\"ab\tc\"", Kind::kControlCharacter, 3);
  expect_fault("\"a\\x\"", Kind::kEscape, 3);
  expect_fault("\"\\u12g4\"", Kind::kEscape, 5);
  expect_fault("\"\\ud800x\"", Kind::kEscape, 7);
  expect_fault("\"\\ud800\\n\"", Kind::kEscape, 7);
  expect_fault("\"\\udc00\"", Kind::kEscape, 6);
  expect_fault("\"\\ud800\\u0041\"", Kind::kEscape, 12);
  expect_fault("\"a\xff\"", Kind::kEncoding, 2);
  expect_fault("\"a\xe4\xb8\"", Kind::kEncoding, 2);
  EXPECT_FALSE(fault_in_string("\"\\ud83d\\ude00 \xe4\xb8\xad \\\" \\\\\"", 0));
  EXPECT_FALSE(fault_in_string("{\"a\": 1", 1));
}

TEST(StringFaults, TheParserRefusesTheSameStrings) {
  const std::vector<std::string> parts{"a",
                                       "\\",
                                       "\\u",
                                       "d8",
                                       "dc",
                                       "00",
                                       "0041",
                                       "\\n",
                                       "\n",
                                       "\x01",
                                       "\x7f",
                                       "/",
                                       "\xc3",
                                       "\xa9",
                                       "\xe4\xb8\xad",
                                       "\xed\xa0\x80",
                                       "\xf4\x90\x80\x80",
                                       "\xf0\x9f\x98\x80"};
  std::mt19937 random(1);
  int sound = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = "\"";
    for (auto n = random() % 6; n > 0; --n) text += parts[random() % parts.size()];
    text += "\"";
    const bool accepted = nlohmann::json::accept(text);
    sound += accepted ? 1 : 0;
    // If the last quote of a string follows a backslash, the string is not closed. Our check and the parser must then both
    // refuse it.
    EXPECT_EQ(!fault_in_string(text, 0), accepted)
        << nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  }
  EXPECT_GT(sound, 1000);
}

}  // namespace
}  // namespace ddprun
