// Tests error files of Python workers: both formats, the time of the failure, and the copy for the program that has started
// ddprun.
#include "launcher/workers/error_file_reader.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

constexpr std::int64_t kErrorFileSecond = 1'000'000'000;

class ErrorFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ddprun_error_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::filesystem::path folder_;
};

TEST_F(ErrorFileTest, ParsesTheObjectForm) {
  const auto file = parse_error_file(
      R"({"message":{"message":"ValueError: x","extraInfo":{"py_callstack":"Traceback\n","timestamp":"12"}}})");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->message, "ValueError: x");
  EXPECT_EQ(file->call_stack, "Traceback\n");
  EXPECT_EQ(file->timestamp_ns, 12 * kErrorFileSecond);
  EXPECT_TRUE(file->whole_seconds);
}

TEST_F(ErrorFileTest, ParsesTheFlatForm) {
  const auto file = parse_error_file(R"({"message":"flat","timestamp":10.5})");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->message, "flat");
  EXPECT_EQ(file->timestamp_ns, 10 * kErrorFileSecond + kErrorFileSecond / 2);
  EXPECT_FALSE(file->whole_seconds);
}

TEST_F(ErrorFileTest, InvalidTimestampsAreIgnored) {
  for (const char* time : {"-1", "1e30", "\"soon\"", "null", "[]"}) {
    const auto file = parse_error_file(std::string(R"({"message":"m","timestamp":)") + time + "}");
    ASSERT_TRUE(file) << time;
    EXPECT_FALSE(file->timestamp_ns) << time;
  }
}

TEST_F(ErrorFileTest, OtherFilesAreRejected) {
  for (const char* bad : {"", "{", "[]", "{}", R"({"message":3})", R"({"message":{}})", R"({"message":{"message":[]}})"}) {
    EXPECT_FALSE(parse_error_file(bad)) << bad;
  }
  EXPECT_FALSE(read_error_file("/nonexistent/error.json"));
  EXPECT_FALSE(read_error_file(folder_));
  EXPECT_FALSE(read_error_file(write("large", "{\"message\":\"" + std::string(2 << 20, 'x') + "\"}")));
}

TEST_F(ErrorFileTest, TheFileTimeGivesTheFraction) {
  ErrorFile file{.timestamp_ns = 10 * kErrorFileSecond, .whole_seconds = true};
  file.written_ns = 10 * kErrorFileSecond + 700;
  EXPECT_EQ(time_of_failure(file, 20 * kErrorFileSecond), 10 * kErrorFileSecond + 700);
  // The file's text contains the time in whole seconds. If the file was copied later or has a wrong mtime, the result is still
  // a time within that second.
  file.written_ns = 99 * kErrorFileSecond;
  EXPECT_EQ(time_of_failure(file, 20 * kErrorFileSecond), 11 * kErrorFileSecond - 1);
  // A failure cannot be later than the end of the process.
  EXPECT_EQ(time_of_failure(file, 10 * kErrorFileSecond + 5), 10 * kErrorFileSecond + 5);
  file.whole_seconds = false;
  EXPECT_EQ(time_of_failure(file, 20 * kErrorFileSecond), 10 * kErrorFileSecond);
  file.timestamp_ns.reset();
  EXPECT_EQ(time_of_failure(file, 20 * kErrorFileSecond), 20 * kErrorFileSecond);
}

TEST_F(ErrorFileTest, AReadFileHasItsWriteTime) {
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  const auto file = read_error_file(write("error.json", R"({"message":"m"})"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->path, folder_ / "error.json");
  EXPECT_GE(file->written_ns, std::chrono::nanoseconds(before).count());
}

TEST_F(ErrorFileTest, OnlyTheObjectFormGetsAnErrorCode) {
  const auto copy_of = [&](const std::string& text, int code) {
    EXPECT_TRUE(copy_error_file(write("from", text), folder_ / "to", code));
    return nlohmann::json::parse(std::ifstream(folder_ / "to"));
  };
  EXPECT_EQ(copy_of(R"({"message":{"message":"x"},"more":[1]})", -11),
            nlohmann::json::parse(R"({"message":{"message":"x","errorCode":-11},"more":[1]})"));
  EXPECT_EQ(copy_of(R"({"message":"x"})", 3), nlohmann::json::parse(R"({"message":"x"})"));
  EXPECT_FALSE(copy_error_file(folder_ / "absent", folder_ / "to", 1));
  EXPECT_FALSE(copy_error_file(folder_ / "from", "/nonexistent/to", 1));
}

}  // namespace
}  // namespace ddprun
