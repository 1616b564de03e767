// Tests that files and JSON texts are read only up to a limit, and that messages quote only a few words of them.
#include "common/bounded/bounded_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "common/base/error.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/bounded/short_quote.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using test::TemporaryFolder;

std::string problem_of(const auto& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

class BoundedFile : public ::testing::Test {
 protected:
  std::filesystem::path written(const std::string& text) {
    const std::filesystem::path file = folder_.path() / "f";
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  TemporaryFolder folder_;
};

TEST_F(BoundedFile, ReadsUpToTheLimit) {
  EXPECT_EQ(read_bounded(written("12345"), 5, "a note"), "12345");
  EXPECT_EQ(read_bounded(written(""), 0, "a note"), "");
}

TEST_F(BoundedFile, OversizedFileErrorNamesTheLimit) {
  const std::filesystem::path file = written("123456");
  EXPECT_EQ(problem_of([&] { read_bounded(file, 5, "a note"); }), file.string() + ": has 6 bytes; the maximum for a note is 5");
}

TEST_F(BoundedFile, FileWithoutSizeIsReadUpToTheLimit) {
  EXPECT_FALSE(read_bounded("/proc/self/status", 1 << 20, "a status").empty());
  EXPECT_NE(problem_of([] { read_bounded("/proc/self/status", 10, "a status"); }).find("more than 10 bytes"),
            std::string::npos);
}

TEST_F(BoundedFile, NonRegularFileIsRefusedWithoutBlocking) {
  const std::filesystem::path pipe = folder_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(problem_of([&] { read_bounded(pipe, 5, "a note"); }).find("is not a regular file"), std::string::npos);
  EXPECT_NE(problem_of([&] { read_bounded(folder_.path() / "none", 5, "a note"); }).find("cannot be read"), std::string::npos);
}

TEST(ShortQuote, KeepsAtMostOneHundredBytes) {
  EXPECT_EQ(short_quote("a\x1b"), "a\\u001b");
  EXPECT_EQ(short_quote(std::string(100, 'a')), std::string(100, 'a'));
  EXPECT_EQ(short_quote(std::string(101, 'a')), std::string(100, 'a') + "... (101 bytes)");
  EXPECT_EQ(short_quote(std::string(99, 'a') + "\u00e9x"), std::string(99, 'a') + "... (102 bytes)")
      << "no half of a character";
}

TEST(JsonLimits, EachLimitIsEnforced) {
  struct Row {
    std::string text;
    JsonLimits limits;
    std::string problem;
  };
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const std::vector<Row> rows{
      {R"({"a": [1, {"b": 2}]})", {.depth = 3, .values = 5, .keys = 1, .elements = 2, .unique_keys = true}, ""},
      {deep, {}, "is nested deeper than 64 levels"},
      {"[[1]]", {.depth = 1}, "is nested deeper than 1 levels"},
      {"[1, 2, 3]", {.values = 3}, "has more than 3 values"},
      {"[1, 2, 3]", {.elements = 2}, "has a list of more than 2 elements"},
      {R"({"a": 1, "b": 2})", {.keys = 1, .entries = "tensors"}, "has more than 1 tensors"},
      {R"({"a": 1, "a": 2})", {.unique_keys = true}, "has the key 'a' twice"},
      {R"({"a": 1, "a": 2})", {}, ""},
      {"[1, ", {}, "is not valid JSON (it ends too early, after 4 bytes)"},
      {"[" + std::string(1000, '9') + "]",
       {},
       "is not valid JSON (a number in it is too large: expected at most about 1.8e308)"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(problem_of([&] { parse_json_within(row.text, row.limits); }), row.problem) << row.text.substr(0, 40);
  }
}

}  // namespace
}  // namespace ddprun
