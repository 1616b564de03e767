// Tests metrics.jsonl: which lines are written, which lines are kept or removed when a run resumes, and the behaviour on a
// full disk.
#include "common/metrics/metrics_log.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/failing_calls.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using test::read_text;
using test::TemporaryFolder;
using test::write_text;

// Collects the reported error messages.
struct MessageCollector {
  std::vector<std::string> messages;
  std::function<void(const std::string&)> callback() {
    return [this](const std::string& text) { messages.push_back(text); };
  }
};

std::vector<json> records(const std::filesystem::path& file) {
  std::vector<json> found;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) found.push_back(json::parse(line));
  return found;
}

// Returns the part of `text` that remains after the log was opened to resume at `resume_step`.
std::string cut_text(const std::string& text, std::int64_t resume_step) {
  TemporaryFolder folder;
  MessageCollector collector;
  write_text(folder / "metrics.jsonl", text);
  MetricsLog(folder / "metrics.jsonl", resume_step, collector.callback());
  EXPECT_TRUE(collector.messages.empty());
  return read_text(folder / "metrics.jsonl");
}

TEST(MetricsLog, WritesOneObjectPerLineStartingWithEventAndTime) {
  TemporaryFolder folder;
  MessageCollector collector;
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  {
    MetricsLog log(folder / "run" / "metrics.jsonl", 0, collector.callback());
    log.write("step", {{"epoch", 0}, {"step", 10}, {"loss", 0.25}});
    log.write("end", ordered_json::object());
  }
  const std::string text = read_text(folder / "run" / "metrics.jsonl");
  const std::vector<json> found = records(folder / "run" / "metrics.jsonl");

  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(text.find(R"({"event":"step","time_ns":)"), 0U);
  EXPECT_NE(text.find(R"(,"epoch":0,"step":10,"loss":0.25})"), std::string::npos);
  EXPECT_GE(found[0]["time_ns"].get<std::int64_t>(), std::chrono::nanoseconds(before).count());
  EXPECT_EQ(found[1].size(), 2U);
  EXPECT_TRUE(collector.messages.empty());
}

TEST(MetricsLog, PreservesEveryBitOfADouble) {
  TemporaryFolder folder;
  const double loss = 0.1 + 0.2;
  MetricsLog(folder / "m", 0, {}).write("step", {{"loss", loss}});
  EXPECT_EQ(records(folder / "m").at(0)["loss"].get<double>(), loss);
}

TEST(MetricsLog, WritesNaNAsNull) {
  TemporaryFolder folder;
  MetricsLog(folder / "m", 0, {}).write("step", {{"loss", std::nan("")}});
  EXPECT_TRUE(records(folder / "m").at(0)["loss"].is_null());
}

TEST(MetricsLog, AppendsAcrossOpenings) {
  TemporaryFolder folder;
  MetricsLog(folder / "m", 0, {}).write("step", {{"step", 1}});
  MetricsLog(folder / "m", 1, {}).write("step", {{"step", 2}});
  EXPECT_EQ(records(folder / "m").size(), 2U);
}

TEST(MetricsLog, RetriesAFailedOpen) {
  TemporaryFolder folder;
  MessageCollector collector;
  std::filesystem::create_directory(folder / "m");  // a folder at the path of the file, so it cannot be opened
  MetricsLog log(folder / "m", 10, collector.callback());
  log.write("step", {{"step", 11}});
  std::filesystem::remove(folder / "m");
  write_text(folder / "m", "{\"step\":10}\n{\"step\":12}\n");
  log.write("step", {{"step", 12}});
  log.write("step", {{"step", 13}});
  const std::vector<json> found = records(folder / "m");
  ASSERT_EQ(found.size(), 4U);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i]["step"], 10 + static_cast<int>(i));
  EXPECT_EQ(log.newest("step"), 13);
  EXPECT_EQ(collector.messages.size(), 1U);
}

// The open file is stale (ESTALE) on a network file system, and its path now names another file or no file. No record may be
// lost. A record that could not be written is written later, to the same file as the next record.
TEST(MetricsLog, ReopensAStaleFile) {
  TemporaryFolder folder;
  MessageCollector collector;
  MetricsLog log(folder / "m", 10, collector.callback());
  log.write("step", {{"step", 11}});
  std::filesystem::rename(folder / "m", folder / "stale");
  test::watch(folder.path(), {.kind = test::CallFault::Kind::kFailCall, .call = 0, .error = ESTALE});
  log.write("step", {{"step", 12}});
  const std::vector<test::RecordedCall> calls = test::stop_watching();
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls[0].name, "write");  // the injected fault made this call fail
  log.write("step", {{"step", 13}});

  ASSERT_EQ(records(folder / "stale").size(), 1U);
  const std::vector<json> found = records(folder / "m");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["step"], 12);
  EXPECT_EQ(found[1]["step"], 13);
  ASSERT_EQ(collector.messages.size(), 1U);
  EXPECT_NE(collector.messages[0].find("Stale file handle"), std::string::npos) << collector.messages[0];
}

TEST(MetricsLog, CutsRecordsPastTheResumePoint) {
  EXPECT_EQ(cut_text("{\"step\":10}\n{\"step\":20}\n{\"step\":30}\n", 20), "{\"step\":10}\n{\"step\":20}\n");
  EXPECT_EQ(cut_text("{\"step\":10}\n{\"step\":20}\n", 0), "");
  EXPECT_EQ(cut_text("{\"step\":10}\n{\"step\":20}\n", 20), "{\"step\":10}\n{\"step\":20}\n");
}

TEST(MetricsLog, KeepsRecordsWithoutAStepAfterTheCut) {
  EXPECT_EQ(cut_text("{\"step\":10}\n{\"step\":30}\n{\"event\":\"restart\"}\n", 20),
            "{\"step\":10}\n{\"event\":\"restart\"}\n");
}

TEST(MetricsLog, CutsTornAndInvalidLines) {
  EXPECT_EQ(cut_text("{\"step\":10}\n{\"step\":1", 20), "{\"step\":10}\n");
  EXPECT_EQ(cut_text("{\"step\":1", 20), "");
  EXPECT_EQ(cut_text(std::string("{\"step\":10}\n") + std::string(20, '\0') + "\n{\"step\":11}\n", 20),
            "{\"step\":10}\n{\"step\":11}\n");
}

// While this object exists, the process can write at most `bytes` bytes to a file, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(MetricsLog, ReportsAFullDiskOnceAndResumes) {
  TemporaryFolder folder;
  MessageCollector collector;
  MetricsLog log(folder / "m", 0, collector.callback());
  log.write("step", {{"step", 1}});
  {
    const FileSizeLimit limit(100);  // leaves space for a part of the second line, and for no byte of the third
    log.write("step", {{"step", 2}, {"text", std::string(80, 'x')}});
    log.write("step", {{"step", 3}, {"text", std::string(80, 'x')}});
  }
  log.write("step", {{"step", 4}});

  ASSERT_EQ(collector.messages.size(), 1U);
  EXPECT_NE(collector.messages[0].find((folder / "m").string()), std::string::npos);
  const std::vector<json> found = records(folder / "m");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["step"], 1);
  EXPECT_EQ(found[1]["step"], 4);
}

// If metrics.jsonl is a pipe without a reader, the open call must not block the start of the run.
TEST(MetricsLog, DoesNotWaitForAPipe) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "m").c_str(), 0600), 0);
  EXPECT_EXIT(
      {
        ::alarm(20);
        MessageCollector collector;
        MetricsLog log(folder / "m", 0, collector.callback());
        log.write("step", {{"step", 1}});
        std::exit(collector.messages.size() == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(MetricsLog, ReportsAFullDeviceOnce) {
  TemporaryFolder folder;
  MessageCollector collector;
  std::filesystem::create_symlink("/dev/full", folder / "m");
  MetricsLog log(folder / "m", 0, collector.callback());
  for (int step = 0; step < 5; ++step) log.write("step", {{"step", step}});

  ASSERT_EQ(collector.messages.size(), 1U);
  EXPECT_NE(collector.messages[0].find("No space left on device"), std::string::npos);
}

TEST(MetricsLog, ReportsAFailedOpenOnceAndContinues) {
  TemporaryFolder folder;
  MessageCollector collector;
  write_text(folder / "run", "a file where a folder should be");
  MetricsLog log(folder / "run" / "metrics.jsonl", 0, collector.callback());
  log.write("step", {{"step", 1}});
  EXPECT_EQ(collector.messages.size(), 1U);
}

}  // namespace
}  // namespace ddprun::trainer
