// Tests writes of large files that bypass the page cache. The file must be complete for any length, and errors of the writer
// thread must be reported.
#include "trainer/checkpoint/direct_writer.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/refused_direct.hpp"
#include "trainer/checkpoint/hashed_file.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string bytes_without_pattern(std::size_t count) {
  std::string bytes(count, '\0');
  std::uint64_t state = 88172645463325252U;  // state of the generator xorshift64
  for (char& byte : bytes) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    byte = static_cast<char>(state);
  }
  return bytes;
}

class OpenFile {
 public:
  explicit OpenFile(const fs::path& file) : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {}
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

TEST(DirectWriter, WritesAnyNumberOfBytes) {
  const TemporaryFolder folder;
  const std::string bytes = bytes_without_pattern(13 * kMiB + 5);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096}, std::size_t{4097},
                                  4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 1, 8 * kMiB, 8 * kMiB + 4096, bytes.size()}) {
    for (const bool direct : {true, false}) {
      const OpenFile file(folder.path() / "file");
      if (direct && !DirectWriter::switch_on(file.fd())) continue;  // this file system does not support direct writes
      DirectWriter writer(file.fd(), folder.path() / "file");
      for (std::size_t at = 0; at < count; at += 777'777)
        writer.write(std::string_view(bytes).substr(at, std::min<std::size_t>(777'777, count - at)));
      writer.finish();
      EXPECT_TRUE(test::read_text(folder.path() / "file") == bytes.substr(0, count)) << count << " bytes, direct: " << direct;
    }
  }
}

TEST(DirectWriter, ReportsAFullDiskWithThePath) {
  const TemporaryFolder folder;
  if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=6m") != 0) GTEST_SKIP() << "needs the right to mount a tmpfs";
  const fs::path path = folder.path() / "file";
  {
    const OpenFile file(path);
    DirectWriter::switch_on(file.fd());
    DirectWriter writer(file.fd(), path);
    try {
      for (int i = 0; i < 16; ++i) writer.write(std::string(kMiB, 'x'));
      writer.finish();
      ADD_FAILURE() << "16 MiB were written to a disk of 6";
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code(), std::make_error_code(std::errc::no_space_on_device));
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    }
  }
  ::umount2(folder.path().c_str(), MNT_DETACH);
}

TEST(HashedFile, LargeFilesHaveTheRightBytesAndChecksum) {
  const TemporaryFolder folder;
  const std::string bytes = bytes_without_pattern(33 * kMiB + 3);
  HashedFileWriter writer(folder.path() / "file", static_cast<std::int64_t>(bytes.size()));
  writer.write(std::string_view(bytes).substr(0, 10));
  writer.write(std::string_view(bytes).substr(10));
  const FileFacts facts = writer.finish();
  EXPECT_EQ(facts, facts_of_file(folder.path() / "file"));
  EXPECT_EQ(facts.xxh3_128, xxh3_128_of(bytes));
}

// Some file systems refuse the flag for direct writes. Other file systems accept the flag and then refuse the first write.
TEST(HashedFile, UsesThePageCacheIfDirectWritesFail) {
  const std::string bytes = bytes_without_pattern(33 * kMiB + 3);
  for (const auto how : {test::Direct::kFlagRefused, test::Direct::kWritesRefused}) {
    const TemporaryFolder folder;
    const test::RefusedDirect refused(how);
    HashedFileWriter writer(folder.path() / "file", static_cast<std::int64_t>(bytes.size()));
    writer.write(bytes);
    const FileFacts facts = writer.finish();
    EXPECT_GE(test::RefusedDirect::refusals(), 1);
    // Each buffer in flight is refused at most once, and later buffers do not try a direct write.
    EXPECT_LE(test::RefusedDirect::refusals(), 4);
    EXPECT_EQ(facts, facts_of_file(folder.path() / "file"));
    EXPECT_EQ(facts.xxh3_128, xxh3_128_of(bytes));
  }
}

// Tests on ramfs, a real file system that does not support direct writes.
TEST(HashedFile, WorksWithoutDirectWrites) {
  const TemporaryFolder folder;
  if (::mount("none", folder.path().c_str(), "ramfs", 0, "") != 0) GTEST_SKIP() << "needs the right to mount a ramfs";
  const std::string bytes = bytes_without_pattern(33 * kMiB + 3);
  FileFacts facts;
  {
    HashedFileWriter writer(folder.path() / "file", static_cast<std::int64_t>(bytes.size()));
    writer.write(bytes);
    facts = writer.finish();
  }
  EXPECT_EQ(facts, facts_of_file(folder.path() / "file"));
  EXPECT_EQ(facts.xxh3_128, xxh3_128_of(bytes));
  ::umount2(folder.path().c_str(), MNT_DETACH);
}

// The file's length is the number of written bytes. Space that was allocated in advance and not used is released.
TEST(HashedFile, HasTheWrittenLength) {
  const std::string bytes = bytes_without_pattern(33 * kMiB + 3);
  for (const std::int64_t expected : {std::int64_t{32} << 20, std::int64_t{40} << 20}) {
    const TemporaryFolder folder;
    HashedFileWriter writer(folder.path() / "file", expected);
    writer.write(bytes);
    const FileFacts facts = writer.finish();
    EXPECT_EQ(facts, facts_of_file(folder.path() / "file")) << expected;
    EXPECT_TRUE(test::read_text(folder.path() / "file") == bytes) << expected;
  }
}

TEST(HashedFile, AnUnfinishedFileIsDestroyedSafely) {
  const TemporaryFolder folder;
  HashedFileWriter writer(folder.path() / "file", static_cast<std::int64_t>(40 * kMiB));
  writer.write(bytes_without_pattern(9 * kMiB));
}

}  // namespace
}  // namespace ddprun::trainer
