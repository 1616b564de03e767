// Tests the word patterns, the normalization of Unicode, and how bytes that are not UTF-8 are handled.
#include "trainer/tokens/words.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trainer/tokens/composed.hpp"
#include "trainer/tokens/utf8.hpp"

namespace ddprun::trainer {
namespace {

std::vector<std::string> words_of(std::string_view text, WordPattern pattern = WordPattern::kGpt2) {
  std::vector<std::string> words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, first_word(text, pattern)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(FirstWord, IncludesThePrecedingSpace) {
  EXPECT_EQ(words_of("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(words_of("a  b   c"), (Words{"a", " ", " b", "  ", " c"}));
  EXPECT_EQ(words_of("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(words_of("a \n"), (Words{"a", " \n"}));
  EXPECT_EQ(words_of(" "), Words{" "});
}

TEST(FirstWord, IsOfOneCharacterClass) {
  EXPECT_EQ(words_of("abc123, 45!?"), (Words{"abc", "123", ",", " 45", "!?"}));
  // The second word contains a Roman numeral, which counts as a number.
  EXPECT_EQ(words_of("\xc3\xa9t\xc3\xa9 \xe2\x85\xa7"), (Words{"\xc3\xa9t\xc3\xa9", " \xe2\x85\xa7"}));
}

TEST(FirstWord, ContractionsAreWords) {
  EXPECT_EQ(words_of("it's they'll I've DON'T"), (Words{"it", "'s", " they", "'ll", " I", "'ve", " DON", "'", "T"}));
  EXPECT_EQ(words_of("''s"), (Words{"''", "s"}));
}

TEST(FirstWord, FollowsThePatternOfLlama3) {
  const auto words = [](std::string_view text) { return words_of(text, WordPattern::kLlama3); };
  EXPECT_EQ(words("I'LL it's 'Tis"), (Words{"I", "'LL", " it", "'s", " '", "Tis"}));
  EXPECT_EQ(words("$abc\t_def"), (Words{"$abc", "\t", "_def"}));
  EXPECT_EQ(words("\tdef\n\nx"), (Words{"\tdef", "\n\n", "x"}));
  EXPECT_EQ(words("12345 6"), (Words{"123", "45", " ", "6"}));
  EXPECT_EQ(words(" !?\n\n a  b"), (Words{" !?\n\n", " a", " ", " b"}));
  EXPECT_EQ(words("a \n \n  b "), (Words{"a", " \n \n", " ", " b", " "}));
  EXPECT_EQ(words_of("123", WordPattern::kQwen2), (Words{"1", "2", "3"}));
}

TEST(Composed, FollowsUnicode) {
  EXPECT_EQ(composed("plain"), "plain");
  EXPECT_EQ(composed("e\u0301"), "\u00e9");
  EXPECT_EQ(composed("q\u0307\u0323"), "q\u0323\u0307") << "sorted by class";
  EXPECT_EQ(composed("a\u0323\u0301"), "\u1ea1\u0301");
  EXPECT_EQ(composed("\u212b\u2126"), "\u00c5\u03a9") << "other spellings of one character";
  EXPECT_EQ(composed("\u1100\u1161\u11a8"), "\uac01") << "Hangul";
  EXPECT_EQ(composed("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(composed("\u0958"), "\u0915\u093c") << "never composed";
  EXPECT_EQ(composed("\u0301\u0300"), "\u0301\u0300") << "no letter precedes";
  EXPECT_EQ(composed("e\u0300\u0301"), "\u00e8\u0301") << "the second accent is of the same class";
}

// The examples are from table 3-8 of the Unicode standard. Python's b"...".decode(errors="replace") has the same results.
TEST(Utf8, InvalidSequencesAreReplacedByMaximalSubparts) {
  const std::string no = "\xef\xbf\xbd";
  EXPECT_EQ(as_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + no + no + no + "b" + no + "c" + no + no + "d");
  EXPECT_EQ(as_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), no + no + no + no + no + no + no + no + "A");
  EXPECT_EQ(as_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), no + no + no + no + no + no + no + no + "A");
  EXPECT_EQ(as_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), no + no + no + no + no + "A" + no + no + "B");
  EXPECT_EQ(as_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), no + no + no + no + "A");
  EXPECT_EQ(as_utf8("\xf0\x9f\x99\x82 \xe2\x82"), "\xf0\x9f\x99\x82 " + no);
}

}  // namespace
}  // namespace ddprun::trainer
