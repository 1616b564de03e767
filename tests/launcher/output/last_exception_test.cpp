// Tests that the exception at the end of Python's output is found, even if other text surrounds it.
#include "launcher/output/last_exception.hpp"
#include "launcher/output/plain_text.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace ddprun {
namespace {

std::string exception_in(std::string_view text, std::string_view prefix = "") {
  LastException last;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    last.add(std::string(prefix) + std::string(text.substr(0, end)));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return last.text();
}

constexpr const char* kTraceback =
    "loading\n"
    "Traceback (most recent call last):\n"
    "  File \"/home/ann/train.py\", line 7, in <module>\n"
    "    main()\n"
    "    ~~~~^^\n"
    "  [Previous line repeated 995 more times]\n"
    "ValueError: 3 is not 4\n";

TEST(LastException, MayPrecedeTheLastLine) {
  EXPECT_EQ(exception_in(std::string(kTraceback) + "\nwandb: Find logs at: wandb/offline-run\nbye\n"),
            "ValueError: 3 is not 4");
  EXPECT_EQ(exception_in("loading\nValueError: without a traceback\n"), "");
}

TEST(LastException, TorchRankPrefixesAreRemoved) {
  EXPECT_EQ(exception_in(kTraceback, "[rank12]: "), "ValueError: 3 is not 4");
  EXPECT_EQ(exception_in(kTraceback, "[rank]: "), "");
}

TEST(LastException, TheLastOfAChainIsKept) {
  const std::string chain = std::string(kTraceback) +
                            "\nDuring handling of the above exception, another exception occurred:\n\n"
                            "Traceback (most recent call last):\n"
                            "  File \"/home/ann/train.py\", line 9, in <module>\n"
                            "    raise Diverged(step) from None\n"
                            "__main__.main.<locals>.Diverged: loss is nan\n";
  EXPECT_EQ(exception_in(chain), "__main__.main.<locals>.Diverged: loss is nan");
}

TEST(LastException, AMessageMayHaveSeveralLines) {
  const std::string text = std::string(kTraceback) + "and 5 is not 6\nin batch 12 of shard 3\n\nan unrelated line\n";
  EXPECT_EQ(exception_in(text), "ValueError: 3 is not 4\nand 5 is not 6\nin batch 12 of shard 3");
}

TEST(LastException, IsBounded) {
  std::string text = kTraceback;
  for (int i = 0; i < 1000; ++i) text += std::string(5000, 'x') + "\n";
  EXPECT_LE(exception_in(text).size(), LastException::kBytes + LastException::kLines);
}

TEST(LastException, AGroupNamesItsMembers) {
  EXPECT_EQ(exception_in("  + Exception Group Traceback (most recent call last):\n"
                         "  |   File \"g.py\", line 2, in <module>\n"
                         "  |     raise ExceptionGroup(\"shards\", [ValueError(\"a\"), OSError(\"b\")])\n"
                         "  | ExceptionGroup: shards (2 sub-exceptions)\n"
                         "  +-+---------------- 1 ----------------\n"
                         "    | Traceback (most recent call last):\n"
                         "    |   File \"g.py\", line 1, in <module>\n"
                         "    | ValueError: a\n"
                         "    +---------------- 2 ----------------\n"
                         "    | OSError: b\n"
                         "    +------------------------------------\n"
                         "bye\n"),
            "ExceptionGroup: shards (2 sub-exceptions): ValueError: a; OSError: b");
}

TEST(LastException, ASyntaxErrorHasNoHeader) {
  EXPECT_EQ(exception_in("  File \"train.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n"),
            "SyntaxError: invalid syntax");
}

TEST(LastException, WithoutAMessageTheTypeIsKept) {
  EXPECT_EQ(exception_in("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyboardInterrupt\n"),
            "KeyboardInterrupt");
}

TEST(LastException, LinesOfOtherThreadsAreSkipped) {
  EXPECT_EQ(exception_in("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n100%|####| 5/5 done\n"
                         "    main()\nKeyError: 'x'\n"),
            "KeyError: 'x'");
}

TEST(LastException, ColoursAreRemoved) {
  EXPECT_EQ(exception_in("Traceback (most recent call last):\n  File \x1b[35m\"a.py\"\x1b[0m, line \x1b[35m1\x1b[0m\n"
                         "\x1b[1;35mValueError\x1b[0m: \x1b[35mbad\x1b[0m\n"),
            "ValueError: bad");
}

TEST(PlainText, HasNoEscapeSequences) {
  EXPECT_EQ(plain_text("as it is"), "as it is");
  EXPECT_EQ(plain_text("\x1b[1;31mred\x1b[0m\x1b[2K end"), "red end");
  EXPECT_EQ(plain_text("\x1b]8;;https://a/\x1b\\link\x1b]8;;\a."), "link.");
  EXPECT_EQ(plain_text("\x1b=keys\x1b"), "keys");
  EXPECT_EQ(plain_text("cut \x1b[1;3"), "cut ");
}

}  // namespace
}  // namespace ddprun
