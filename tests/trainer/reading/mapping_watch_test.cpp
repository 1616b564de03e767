// Tests changes to a file while it is mapped. No signal may end the process, and the change must be reported.
#include "trainer/reading/mapping_watch.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "trainer/reading/mapped_file.hpp"

namespace ddprun::trainer {
namespace {

class MappingWatch : public testing::Test {
 protected:
  MappingWatch() { test::write_text(file_, std::string(5 * 4096, 'x')); }

  static std::string complaint() {
    try {
      require_mapped_files();
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  }
  void overwrite(std::size_t at, char with) {
    std::fstream out(file_, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at));
    out.put(with);
    out.close();
    later(1);
  }
  void later(int seconds) {
    std::filesystem::last_write_time(file_, std::filesystem::last_write_time(file_) + std::chrono::seconds(seconds));
  }

  test::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "train.csv";
};

TEST_F(MappingWatch, ATruncatedFileReadsAsZerosAndIsNamed) {
  {
    const MappedFile mapped(file_);
    EXPECT_EQ(complaint(), "");
    std::filesystem::resize_file(file_, 4096);
    EXPECT_EQ(mapped.bytes()[4096], '\0') << "without the handler SIGBUS ends the process";
    EXPECT_EQ(mapped.bytes()[4 * 4096], '\0');
    EXPECT_EQ(mapped.bytes()[4095], 'x');
    EXPECT_NE(complaint().find(file_.string() + "' was truncated from 20480 to 4096 bytes"), std::string::npos) << complaint();
    test::write_text(file_, std::string(5 * 4096, 'x'));
    EXPECT_NE(complaint().find("became unreadable"), std::string::npos) << "its pages are zeros, whatever the file is now";
  }
  EXPECT_EQ(complaint(), "") << "nothing is mapped";
}

// If a read is beyond the new end but within the last page, it gives zeros without a signal. The change must still be
// detected.
TEST_F(MappingWatch, AFileTruncatedWithinAPageIsNamed) {
  const MappedFile mapped(file_);
  std::filesystem::resize_file(file_, 5 * 4096 - 10);
  EXPECT_NE(complaint().find("was truncated"), std::string::npos) << complaint();
}

TEST_F(MappingWatch, AnOverwrittenFileIsNamed) {
  const MappedFile mapped(file_);
  overwrite(2 * 4096, 'y');
  EXPECT_NE(complaint().find(file_.string() + "' was overwritten"), std::string::npos) << complaint();
}

TEST_F(MappingWatch, ANewTimeOrAReplacedFileIsAccepted) {
  const MappedFile mapped(file_);
  later(5);
  EXPECT_EQ(complaint(), "");
  test::write_text(folder_ / "other", "y");
  std::filesystem::rename(folder_ / "other", file_);
  EXPECT_EQ(complaint(), "");
  EXPECT_EQ(mapped.bytes()[4 * 4096], 'x');
}

TEST_F(MappingWatch, AForeignBusErrorEndsTheProcess) {
  const MappedFile mapped(file_);
  EXPECT_EXIT(::raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace ddprun::trainer
