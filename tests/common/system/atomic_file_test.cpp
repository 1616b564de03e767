// Tests that a reader sees the complete old or new file, and that a failed write leaves no file behind.
#include "common/system/atomic_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <system_error>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using test::read_text;
using test::TemporaryFolder;

std::size_t entries(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(AtomicFile, WritesAndReplaces) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.json", "old");
  EXPECT_EQ(read_text(folder / "a.json"), "old");
  write_file_atomically(folder / "a.json", std::string_view("n\0w", 3));
  EXPECT_EQ(read_text(folder / "a.json"), std::string("n\0w", 3));
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, HasTheRequestedMode) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "token", "secret", 0600);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "token").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(AtomicFile, AnOpenReaderKeepsTheOldFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  std::ifstream reader(folder / "a");
  write_file_atomically(folder / "a", "new");
  std::string text;
  reader >> text;
  EXPECT_EQ(text, "old");
}

TEST(MakeDurableFolder, CreatesAllMissingParentsForAnySpelling) {
  const TemporaryFolder folder;
  make_durable_folder(folder / "a/b/c");
  make_durable_folder(folder / "d/");
  make_durable_folder(folder.path());  // this call must not fail, even though the folder already exists
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  make_durable_folder("checkpoints");
  make_durable_folder("./e/f/");
  std::filesystem::current_path(before);
  for (const char* made : {"a/b/c", "d", "checkpoints", "e/f"})
    EXPECT_TRUE(std::filesystem::is_directory(folder / made)) << made;
}

TEST(AtomicFile, MissingFolderIsReported) {
  const TemporaryFolder folder;
  try {
    write_file_atomically(folder / "no/such/a", "x");
    FAIL() << "expected std::system_error";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOENT);
    EXPECT_NE(std::string(error.what()).find((folder / "no/such").string()), std::string::npos) << error.what();
  }
}

// A limit on the file size simulates a full disk, so the write fails after some of the data is written.
TEST(AtomicFile, FailedWriteLeavesOnlyTheOldFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit small = limit;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  int code = 0;
  try {
    write_file_atomically(folder / "a", std::string(5000, 'x'));
  } catch (const std::system_error& error) {
    message = error.what();
    code = error.code().value();
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(code, EFBIG);
  EXPECT_EQ(message, "cannot write " + (folder / "a").string() + ": File too large");
  EXPECT_EQ(read_text(folder / "a"), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, NonRegularTargetIsWrittenInPlace) {
  const TemporaryFolder folder;
  EXPECT_TRUE(write_named_file(folder / "page", "old"));
  std::filesystem::create_symlink(folder / "page", folder / "link");
  EXPECT_FALSE(write_named_file(folder / "link", "new"));
  EXPECT_EQ(read_text(folder / "page"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  std::filesystem::create_symlink("/dev/null", folder / "null");
  EXPECT_FALSE(write_named_file(folder / "null", "gone"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "null"));
  EXPECT_THROW(write_named_file(folder.path(), "x"), std::system_error);
}

TEST(AtomicFile, SyncOfAMissingFolderIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THROW(fsync_directory(folder / "none"), std::system_error);
  EXPECT_NO_THROW(fsync_directory(folder.path()));
}

}  // namespace
}  // namespace ddprun
