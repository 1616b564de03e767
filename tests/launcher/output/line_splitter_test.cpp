// Tests that LineSplitter returns whole lines in order, no matter how the bytes are split into chunks.
#include "launcher/output/line_splitter.hpp"

#include <gtest/gtest.h>

#include <random>

namespace ddprun {
namespace {

TEST(LineSplitter, KeepsAnUnfinishedLine) {
  LineSplitter splitter;
  std::string out;
  const auto take = [&](std::string_view lines) { out += lines; };
  splitter.feed("one\ntwo\nth", take);
  EXPECT_EQ(out, "one\ntwo\n");
  EXPECT_EQ(splitter.rest(), "th");
  splitter.feed("ree", take);
  EXPECT_EQ(out, "one\ntwo\n");
  splitter.feed("\n\nfour", take);
  EXPECT_EQ(out, "one\ntwo\nthree\n\n");
  EXPECT_EQ(splitter.take_rest(), "four");
  EXPECT_EQ(splitter.rest(), "");
}

TEST(LineSplitter, ReportsAnOverlongLine) {
  LineSplitter splitter;
  splitter.feed(std::string(LineSplitter::kMaxLineBytes - 1, 'x'), [](std::string_view) { FAIL(); });
  EXPECT_FALSE(splitter.too_long());
  splitter.feed("x", [](std::string_view) { FAIL(); });
  EXPECT_TRUE(splitter.too_long());
}

// A failure prints its seed, and the seed reproduces the failure.
TEST(LineSplitter, AnySplitYieldsTheSameLines) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (auto size = random() % 2000; size > 0; --size) text += random() % 9 == 0 ? '\n' : static_cast<char>(random() % 256);
    LineSplitter splitter;
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(random() % 50, text.size() - at);
      splitter.feed(std::string_view(text).substr(at, size), [&](std::string_view lines) {
        ASSERT_TRUE(lines.ends_with('\n')) << "seed " << seed;
        out += lines;
      });
      at += size;
    }
    EXPECT_EQ(splitter.rest().find('\n'), std::string_view::npos) << "seed " << seed;
    EXPECT_EQ(out + splitter.take_rest(), text) << "seed " << seed;
  }
}

TEST(VisiblePart, MatchesATerminal) {
  EXPECT_EQ(visible_part("plain"), "plain");
  EXPECT_EQ(visible_part("dos\r"), "dos");
  EXPECT_EQ(visible_part("\r10%\r20%"), "20%");
  EXPECT_EQ(visible_part("\r10%\r20%\r"), "20%");
  EXPECT_EQ(visible_part("\r\r"), "");
}

}  // namespace
}  // namespace ddprun
