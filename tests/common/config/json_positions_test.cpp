// Tests the positions of keys and values in a JSON text, and the messages for syntax errors.
#include "common/config/json_positions.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

std::string value_at(std::string_view text, const std::string& pointer) {
  return line_and_column(text, parse_with_positions(text).places.at(pointer).value);
}
std::string key_at(std::string_view text, const std::string& pointer) {
  return line_and_column(text, parse_with_positions(text).places.at(pointer).key);
}
std::string problem(std::string_view text) {
  const PositionedJson json = parse_with_positions(text);
  if (json.problems.empty()) return "none";
  return line_and_column(text, json.problems[0].offset) + ": " + json.problems[0].message + json.problems[0].hint(text);
}

TEST(JsonPositions, KeysAndValues) {
  const std::string_view text =
      "{ // a comment, with : and \"\n"
      "  \"a\": 1,/* and\n"
      " another */ \"b\" /**/ : /*:*/ [10,-2.5e3// x\n"
      ",{\"c/d~\":true}],\n"
      "\t\"e\\\"\": \"x\\\\\",\"f\":null}\n";
  const PositionedJson json = parse_with_positions(text);
  ASSERT_TRUE(json.complete);
  EXPECT_TRUE(json.problems.empty());
  EXPECT_EQ(json.root, nlohmann::json::parse(R"({"a":1,"b":[10,-2500.0,{"c/d~":true}],"e\"":"x\\","f":null})"));
  EXPECT_EQ(value_at(text, ""), "1:1");
  EXPECT_EQ(key_at(text, "/a"), "2:3");
  EXPECT_EQ(value_at(text, "/a"), "2:8");
  EXPECT_EQ(key_at(text, "/b"), "3:13");
  EXPECT_EQ(value_at(text, "/b"), "3:30");
  EXPECT_EQ(value_at(text, "/b/0"), "3:31");
  EXPECT_EQ(value_at(text, "/b/1"), "3:34");
  EXPECT_EQ(value_at(text, "/b/2"), "4:2");
  EXPECT_EQ(key_at(text, "/b/2/c~1d~0"), "4:3");
  EXPECT_EQ(value_at(text, "/b/2/c~1d~0"), "4:10");
  EXPECT_EQ(value_at(text, "/e\""), "5:9");
  EXPECT_EQ(key_at(text, "/f"), "5:15");
  EXPECT_EQ(value_at(text, "/f"), "5:19");
}

TEST(JsonPositions, ColumnsCountCharactersAndSkipAByteOrderMark) {
  EXPECT_EQ(value_at("\xEF\xBB\xBF{\"\xC3\xA9\": 1}", "/\xC3\xA9"), "1:7");
}

TEST(JsonPositions, NumbersNextToCommentsAndBrackets) {
  EXPECT_EQ(value_at("[1/**/,2/**/]", "/1"), "1:8");
  EXPECT_EQ(value_at("[[1],2]", "/1"), "1:6");
  EXPECT_EQ(value_at("[[],{},3]", "/2"), "1:8");
}

TEST(JsonPositions, DuplicateKeysAreNamedWithBothPlaces) {
  EXPECT_EQ(problem("{\"a\": {\"b\": 1,\n \"b\": 2}}"), "2:2: key 'b' is given twice (/a/b); first at 1:8");
}

TEST(JsonPositions, SyntaxErrorsNameTheExpectation) {
  EXPECT_EQ(problem(""), "1:1: expected '{', found the end of the file");
  EXPECT_EQ(problem("// only\n"), "2:1: expected '{', found the end of the file");
  EXPECT_EQ(problem("}"), "1:1: expected '{', found '}'");
  EXPECT_EQ(problem("{\n  \"a\": 1\n  \"b\": 2}"), "3:3: expected ',' or '}' after the value, found \"b\"");
  EXPECT_EQ(problem("{\"a\": 1,\n}"), "2:1: expected a key in double quotes after ',', found '}': remove the ',' before it");
  EXPECT_EQ(problem("{\"a\": 1,, \"b\": 2}"), "1:9: expected a key in double quotes after ',', found ','");
  EXPECT_EQ(problem("{\"a\": [1, 2,]}"), "1:13: expected a value after ',', found ']': remove the ',' before it");
  EXPECT_EQ(problem("{\"a\": [1 2]}"), "1:10: expected ',' or ']' after the value, found '2'");
  EXPECT_EQ(problem("{\"a\" 1}"), "1:6: expected ':' after the key, found '1'");
  EXPECT_EQ(problem("{\"a\": }"), "1:7: expected a value after ':', found '}'");
  EXPECT_EQ(problem("{\"a\": 1"), "1:8: expected ',' or '}' after the value, found the end of the file");
  EXPECT_EQ(problem("{"), "1:2: expected a key in double quotes or '}', found the end of the file");
  EXPECT_EQ(problem("{,}"), "1:2: expected a key in double quotes or '}', found ','");
  EXPECT_EQ(problem("{} x"), "1:4: expected the end of the file, found 'x'");
  EXPECT_EQ(problem("{} {"), "1:4: expected the end of the file, found '{'");
}

TEST(JsonPositions, BrokenTokensAreExplained) {
  EXPECT_EQ(problem("{\"a\": 'x'}"), "1:7: expected a value after ':', found a single quote: strings need double quotes");
  EXPECT_EQ(problem("{'a': 1}"),
            "1:2: expected a key in double quotes or '}', found a single quote: strings need double quotes");
  EXPECT_EQ(problem("{\"a\": True}"), "1:7: expected a value, found 'True': write true");
  EXPECT_EQ(problem("{\"a\": None}"), "1:7: expected a value, found 'None': write null");
  EXPECT_EQ(problem("{\"a\": cnn}"), "1:7: expected a value, found 'cnn': strings need double quotes");
  EXPECT_EQ(problem("{\"a\": NaN}"), "1:7: expected a value, found 'NaN', which is not a value in JSON");
  EXPECT_EQ(problem("{\"a\": .5}"), "1:7: expected a value, found '.5': numbers start with a digit or '-'");
  EXPECT_EQ(problem("{\"a\": 1.}"), "1:7: expected a number, found '1.'");
  EXPECT_EQ(problem("{\"a\": -x}"), "1:7: expected a number, found '-x'");
  EXPECT_EQ(problem("{\"a\": 1e999}"), "1:7: this number is too large: expected at most about 1.8e308, found '1e999'");
  EXPECT_EQ(problem("{\"a\": \"x}"), "1:7: expected '\"' at the end of this string, found the end of the file");
  EXPECT_EQ(problem("{\"a\": \"x,\n\"b\": 1}"), "1:7: expected '\"' at the end of this string, found the end of the line");
  EXPECT_EQ(problem("{\"a\": \"x\ty\"}"), "1:9: this string contains a control character: write it as \\u00XX");
  EXPECT_EQ(
      problem("{\"a\": \"\\x\"}"),
      "1:9: unknown escape sequence in a string: expected \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX after the backslash");
  EXPECT_EQ(problem("{\"a\": \"\xff\"}"), "1:8: this string is not valid UTF-8: save the file as UTF-8");
  EXPECT_EQ(problem("{ /* open\n"), "1:3: expected '*/' at the end of this comment, found the end of the file");
  EXPECT_EQ(problem("{ / x\n}"), "1:3: expected '//' or '/*' to start a comment, found '/'");
  EXPECT_EQ(problem("{\"a\": 1 # x\n}"), "1:9: expected ',' or '}' after the value, found '#'");
}

TEST(JsonPositions, ForeignNumberSyntaxIsShownInFull) {
  const auto of = [](const std::string& number) { return problem("{\"seed\":" + number + ",\n\"data\":{\"dir\":\"d\"}}"); };
  EXPECT_EQ(of("010"), "1:9: expected a number, found '010': JSON numbers have no leading zeros; write 10");
  EXPECT_EQ(of("-08.5"), "1:9: expected a number, found '-08.5': JSON numbers have no leading zeros; write -8.5");
  EXPECT_EQ(of("00"), "1:9: expected a number, found '00': JSON numbers have no leading zeros; write 0");
  EXPECT_EQ(of("00.5"), "1:9: expected a number, found '00.5': JSON numbers have no leading zeros; write 0.5");
  EXPECT_EQ(of("0x10"), "1:9: expected a number, found '0x10': JSON has decimal numbers only; write 16");
  EXPECT_EQ(of("-0b101"), "1:9: expected a number, found '-0b101': JSON has decimal numbers only; write -5");
  EXPECT_EQ(of("1_000"), "1:9: expected a number, found '1_000': JSON has no '_' in numbers; write 1000");
  EXPECT_EQ(of("12abc"), "1:9: expected a number, found '12abc': strings need double quotes");
  EXPECT_EQ(of("0xyz"), "1:9: expected a number, found '0xyz': strings need double quotes");
  EXPECT_EQ(problem("[1,010]"), "1:4: expected a number, found '010': JSON numbers have no leading zeros; write 10");
  EXPECT_EQ(problem("[0,-0,0.5,1e3,1E+3,-0.0e-1]"), "none");
}

TEST(JsonPositions, MisplacedWordsAreRefused) {
  EXPECT_EQ(problem("{seed:1}"), "1:2: expected a key in double quotes or '}', found 'seed': write it in double quotes");
  EXPECT_EQ(problem("{\"a\":1, -x:1}"),
            "1:9: expected a key in double quotes after ',', found '-x': write it in double quotes");
  EXPECT_EQ(problem("{1:2}"), "1:2: expected a key in double quotes or '}', found '1': write it in double quotes");
  EXPECT_EQ(problem("{\"a\": 1 b: 2}"), "1:9: expected ',' or '}' after the value, found 'b'");
  EXPECT_EQ(problem("[x]"), "1:2: expected a value, found 'x': strings need double quotes");
}

TEST(JsonPositions, OtherEncodingsAreNamed) {
  using namespace std::string_view_literals;
  const std::string utf16 =
      "1:1: expected UTF-8 text, found UTF-16: save the file as UTF-8 (or iconv -f UTF-16 -t UTF-8 OLD > NEW)";
  EXPECT_EQ(problem("\xFF\xFE{\0}\0"sv), utf16);
  EXPECT_EQ(problem("\xFE\xFF\0{\0}"sv), utf16);
  EXPECT_EQ(problem("{\0}\0"sv), utf16);
  EXPECT_EQ(problem("\0{\0}"sv), utf16);
  EXPECT_NE(problem("{\0\0\0}\0\0\0"sv).find("found UTF-32:"), std::string::npos);
  EXPECT_NE(problem("\xFF\xFE\0\0{\0\0\0"sv).find("found UTF-32:"), std::string::npos);
}

TEST(JsonPositions, NestingHasALimit) {
  EXPECT_EQ(problem(std::string(64, '[') + std::string(64, ']')), "none");
  EXPECT_EQ(problem(std::string(100'000, '[')), "1:65: expected at most 64 levels of nested '{' and '[', found more");
}

}  // namespace
}  // namespace ddprun
