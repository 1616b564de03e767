// Tests that control characters in the text of a message are escaped before the message goes to a terminal.
#include "common/base/printable.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(Printable, PlainTextIsUnchanged) {
  EXPECT_EQ(printable("epochs=\"3\" \\n ~"), "epochs=\"3\" \\n ~");
  EXPECT_EQ(printable("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xC2\xA0"), "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xC2\xA0");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, ControlCharactersAreEscaped) {
  using namespace std::string_view_literals;
  EXPECT_EQ(printable("\x1b[31mred\a\0\x7f\r"sv), "\\u001b[31mred\\u0007\\u0000\\u007f\\u000d");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\u009b31m");  // this single character (CSI) also starts an escape sequence
}

TEST(Printable, LineEndsAreKeptOnRequest) {
  EXPECT_EQ(printable("a\nb\t"), "a\\u000ab\\u0009");
  EXPECT_EQ(printable("a\nb\t\r", LineEnds::kKeep), "a\nb\t\\u000d");
}

TEST(Printable, BytesThatAreNotUtf8AreEscaped) {
  EXPECT_EQ(printable("\xFFx"), "\\xffx");
  EXPECT_EQ(printable("\x9b"), "\\x9b");
  EXPECT_EQ(printable("cut \xE2\x82"), "cut \\xe2\\x82");
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf");           // an overlong encoding of '/'
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // half of a UTF-16 surrogate pair, encoded as UTF-8
}

}  // namespace
}  // namespace ddprun
