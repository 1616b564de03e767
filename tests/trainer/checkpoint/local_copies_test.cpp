// Copies on a node's own disk: one folder for each writing process, which later processes find.
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

TEST(LocalCopies, RunsThatShareADiskDoNotMeet) {
  const fs::path one = local_copies_of("/disk", "/runs/a", "00ff");
  EXPECT_EQ(one.parent_path(), "/disk");
  EXPECT_TRUE(one.filename().string().starts_with("a-")) << one;
  EXPECT_EQ(one, local_copies_of("/disk", "/runs/./a", "00ff"));
  EXPECT_NE(one, local_copies_of("/disk", "/other/a", "00ff"));
  EXPECT_NE(one, local_copies_of("/disk", "/runs/a", "00fe"));
}

TEST(LocalCopies, EachWriterHasAFolderOfItsOwnUntilItEnds) {
  const TemporaryFolder disk;
  std::optional<OwnCopy> first(disk / "run");
  OwnCopy second(disk / "run");
  EXPECT_EQ(first->take(), disk / "run" / "copy-0");
  EXPECT_EQ(second.take(), disk / "run" / "copy-1");
  EXPECT_EQ(first->take(), disk / "run" / "copy-0");
  first.reset();
  OwnCopy third(disk / "run");
  EXPECT_EQ(third.take(), disk / "run" / "copy-0");
  std::vector<fs::path> all = copy_folders(disk / "run");
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector{disk / "run" / "copy-0", disk / "run" / "copy-1"}));
}

TEST(LocalCopies, TheFolderOfAKilledProcessIsFreeAtOnce) {
  const TemporaryFolder disk;
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    OwnCopy own(disk / "run");
    own.take();
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char word = 0;
  ASSERT_EQ(::read(ready[0], &word, 1), 1);
  OwnCopy beside(disk / "run");
  EXPECT_EQ(beside.take(), disk / "run" / "copy-1");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  OwnCopy after(disk / "run");
  EXPECT_EQ(after.take(), disk / "run" / "copy-0");
  for (const int fd : ready) ::close(fd);
}

TEST(LocalCopies, AFolderThatSomebodyRemovedIsTakenAnew) {
  const TemporaryFolder disk;
  OwnCopy own(disk / "run");
  own.take();
  fs::remove_all(disk / "run");
  OwnCopy other(disk / "run");
  EXPECT_EQ(other.take(), disk / "run" / "copy-0");
  EXPECT_EQ(own.take(), disk / "run" / "copy-1");
}

TEST(LocalCopies, ADiskThatCannotBeWrittenIsNamed) {
  const TemporaryFolder disk;
  test::write_text(disk / "file", "x");
  OwnCopy own(disk / "file");
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
