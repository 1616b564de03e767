// Tests that symbolic links of the same user are followed, and links of other users are not. Only root can create a link that
// belongs to another user, so these tests are skipped for other users.
#include "common/shared_folder/others_link.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/base/error.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/system/atomic_file.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using test::read_text;
using test::TemporaryFolder;
using test::write_text;

constexpr uid_t kOther = 61008;

class LinkOfAnotherUser : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's link";
    write_text(victim_, "precious");
    fs::create_directory(root_);
  }
  // Creates a symbolic link to `to` in the folder of the other user.
  fs::path link(const char* name, const fs::path& to) {
    fs::create_symlink(to, root_ / name);
    EXPECT_EQ(::lchown((root_ / name).c_str(), kOther, kOther), 0);
    EXPECT_EQ(::chown(root_.c_str(), kOther, kOther), 0);
    return root_ / name;
  }

  TemporaryFolder folder_;
  fs::path victim_ = folder_.path() / "victim";
  fs::path root_ = folder_.path() / "run";
};

TEST(LinkOfThisUser, IsFollowed) {
  const TemporaryFolder folder;
  write_text(folder.path() / "file", "text");
  fs::create_symlink("file", folder.path() / "link");
  EXPECT_FALSE(is_others_link(folder.path() / "link"));
  EXPECT_FALSE(is_others_link(folder.path() / "file"));
  EXPECT_FALSE(is_others_link(folder.path() / "none"));
  const int fd = open_unless_others_link(folder.path() / "link", O_RDONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0);
  ::close(fd);
  EXPECT_NO_THROW(refuse_others_links(folder.path()));
}

TEST_F(LinkOfAnotherUser, IsNotOpened) {
  const fs::path there = link("log", victim_);
  EXPECT_TRUE(is_others_link(there));
  EXPECT_EQ(open_unless_others_link(there, O_WRONLY | O_APPEND | O_CLOEXEC), -1);
  EXPECT_EQ(errno, ELOOP);
  EXPECT_THROW(refuse_others_links(root_), UsageError);
}

TEST_F(LinkOfAnotherUser, InAnotherUsersFolderIsNotOpened) {
  const fs::path there = link("log", victim_);
  ASSERT_EQ(::lchown(there.c_str(), ::geteuid(), ::getegid()), 0);
  EXPECT_TRUE(is_others_link(there));
}

TEST_F(LinkOfAnotherUser, IsReplacedByTheFile) {
  const fs::path there = link("report.html", victim_);
  EXPECT_TRUE(write_named_file(there, "page"));
  EXPECT_EQ(read_text(there), "page");
  EXPECT_FALSE(fs::is_symlink(there));
  EXPECT_EQ(read_text(victim_), "precious");
}

TEST_F(LinkOfAnotherUser, IsNotARunLock) {
  link("lock", victim_);
  EXPECT_THROW(take_run_lock(root_), UsageError);
  EXPECT_EQ(read_text(victim_), "precious");
}

TEST_F(LinkOfAnotherUser, HardLinkIsNotARunLock) {
  fs::create_hard_link(victim_, root_ / "lock");
  ASSERT_EQ(::chown(root_.c_str(), kOther, kOther), 0);
  EXPECT_THROW(take_run_lock(root_), UsageError);
  EXPECT_EQ(read_text(victim_), "precious");
}

TEST_F(LinkOfAnotherUser, PreventsOpeningARunDirectory) {
  link("logs", folder_.path());
  const TrainConfig config;
  EXPECT_THROW(open_run_directory(root_, config, FreshStart::kNo), UsageError);
}

}  // namespace
}  // namespace ddprun
