// Tests copies of checkpoints on a node's own disk. Each process that writes copies has its own folder, which later processes
// find.
#include "trainer/checkpoint/local_copies.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

TEST(LocalCopies, RunsSharingADiskUseSeparateFolders) {
  const fs::path one = local_copies_of("/disk", "/runs/a", "00ff");
  EXPECT_EQ(one.parent_path(), "/disk");
  EXPECT_TRUE(one.filename().string().starts_with("a-")) << one;
  EXPECT_EQ(one, local_copies_of("/disk", "/runs/./a", "00ff"));
  EXPECT_NE(one, local_copies_of("/disk", "/other/a", "00ff"));
  EXPECT_NE(one, local_copies_of("/disk", "/runs/a", "00fe"));
}

TEST(LocalCopies, EachLiveWriterHasItsFolder) {
  const TemporaryFolder disk;
  std::optional<LocalCopyFolder> first(disk / "run");
  LocalCopyFolder second(disk / "run");
  EXPECT_EQ(first->take(), disk / "run" / "copy-0");
  EXPECT_EQ(second.take(), disk / "run" / "copy-1");
  EXPECT_EQ(first->take(), disk / "run" / "copy-0");
  first.reset();
  LocalCopyFolder third(disk / "run");
  EXPECT_EQ(third.take(), disk / "run" / "copy-0");
  std::vector<fs::path> all = copy_folders(disk / "run");
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector{disk / "run" / "copy-0", disk / "run" / "copy-1"}));
}

TEST(LocalCopies, AKilledProcessReleasesItsFolder) {
  const TemporaryFolder disk;
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    LocalCopyFolder own(disk / "run");
    own.take();
    [[maybe_unused]] const ssize_t written = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char ready_byte = 0;
  ASSERT_EQ(::read(ready[0], &ready_byte, 1), 1);
  LocalCopyFolder second_copy(disk / "run");
  EXPECT_EQ(second_copy.take(), disk / "run" / "copy-1");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  LocalCopyFolder after(disk / "run");
  EXPECT_EQ(after.take(), disk / "run" / "copy-0");
  for (const int fd : ready) ::close(fd);
}

TEST(LocalCopies, ARemovedFolderIsCreatedAgain) {
  const TemporaryFolder disk;
  LocalCopyFolder own(disk / "run");
  own.take();
  fs::remove_all(disk / "run");
  LocalCopyFolder other(disk / "run");
  EXPECT_EQ(other.take(), disk / "run" / "copy-0");
  EXPECT_EQ(own.take(), disk / "run" / "copy-1");
}

TEST(LocalCopies, AnUnwritableDiskIsNamed) {
  const TemporaryFolder disk;
  test::write_text(disk / "file", "x");
  LocalCopyFolder own(disk / "file");
  try {
    own.take();
    ADD_FAILURE() << "a folder was made in a file";
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find((disk / "file").string()), std::string::npos) << error.what();
  }
  EXPECT_TRUE(copy_folders(disk / "none").empty());
}

}  // namespace
}  // namespace ddprun::trainer
