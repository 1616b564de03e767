// Tests how the scalars in the Kubernetes manifests are written. test_kubernetes.py in tests/whole_program reads whole
// manifests with a YAML parser.
#include "launcher/submit/kubernetes/yaml_text.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {
namespace {

TEST(YamlText, PlainWordsStayReadable) {
  for (const char* text :
       {"ddprun", "--nnodes", "/secrets/token", "train.py", "optimizer.lr=0.01", "registry/train:1", "a-b_c"}) {
    EXPECT_EQ(yaml_text(text), text);
  }
}

TEST(YamlText, EverythingElseIsQuoted) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"", R"("")"},
      {"4", R"("4")"},
      {"2:4", R"("2:4")"},
      {"2026-01-01", R"("2026-01-01")"},
      {"-m", R"("-m")"},
      {"-", R"("-")"},
      {"---", R"("---")"},
      {".inf", R"(".inf")"},
      {"No", R"("No")"},
      {"y", R"("y")"},
      {"null", R"("null")"},
      {"key:", R"("key:")"},
      {"key: value", R"("key: value")"},
      {"a #b", R"("a #b")"},
      {"two words", R"("two words")"},
      {"a \"word\"", R"("a \"word\"")"},
      {"back\\slash", R"("back\\slash")"},
      {"line\nline\ttab\r", R"("line\nline\ttab\x0d")"},
      {"$(date)", "\"$(date)\""},
      {"{a}", R"("{a}")"},
      {"\x1b[0m", R"("\x1b[0m")"},
      {"größe", R"("größe")"},
      {"\xC2\x85", R"("\x85")"},          // NEL, a line break of YAML 1.1
      {"\xE2\x80\xA8", R"("\u2028")"},    // LINE SEPARATOR
      {"\xEF\xBB\xBFx", R"("\ufeffx")"},  // a byte order mark
      {"\xF0\x9F\x9A\x80", "\"\xF0\x9F\x9A\x80\""},
  };
  for (const auto& [text, expected] : table) EXPECT_EQ(yaml_text(text), expected) << text;
}

TEST(YamlText, CommentHasOneLine) {
  EXPECT_EQ(yaml_comment("a 'b\nc' \"d\" \xE2\x80\xA9 ü"), "a 'b\\nc' \"d\" \\u2029 ü");
}

TEST(YamlText, InvalidUtf8IsDetected) {
  EXPECT_TRUE(is_utf8("plain, größe, \xF0\x9F\x9A\x80"));
  EXPECT_TRUE(is_utf8(""));
  for (const char* text : {"\xff", "a\xC3", "\xED\xA0\x80", "\xC0\xAF"}) EXPECT_FALSE(is_utf8(text));
}

TEST(ContainerWord, DoublesEachDollar) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"$(date)", "$$(date)"}, {"$HOME", "$$HOME"}, {"kill $$", "kill $$$$"}, {"5$", "5$$"}, {"plain", "plain"}};
  for (const auto& [word, expected] : table) EXPECT_EQ(container_word(word), expected);
}

TEST(Indented, SkipsEmptyLines) {
  EXPECT_EQ(indented("a\n\n  b\n", 2), "  a\n\n    b\n");
  EXPECT_EQ(indented("a", 2), "  a");
  EXPECT_EQ(indented("", 2), "");
}

}  // namespace
}  // namespace ddprun::test
