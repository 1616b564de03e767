// Tests a run directory that is moved or removed while its job runs. The job then creates a new folder at the same path.
#include "common/run_directory/moved_run.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "common/config/parse_config.hpp"
#include "common/run_directory/checkpoint_list.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using test::read_text;
using test::TemporaryFolder;
using test::write_text;

class MovedRun : public testing::Test {
 protected:
  MovedRun() {
    // Each invocation raises the term (the number in the lock file) by one, so the last term is 3.
    for (int start = 0; start < 3; ++start) {
      if (lock_ >= 0) ::close(lock_);
      lock_ = open_run_directory(root_, config(), FreshStart::kNo).lock_fd;
    }
    identity_ = identity_of_directory(root_);
    write_text(root_ / "run.json", "{}");
    for (const int step : {20, 40}) write_text(RunLayout{root_}.checkpoint(step) / "manifest.json", std::to_string(step));
    write_text(root_ / kWriterClaim, R"({"term": 3, "restart": 0})");
  }
  ~MovedRun() override {
    ::close(lock_);
    if (remade_ >= 0) ::close(remade_);
  }
  static TrainConfig config() { return parse_config(R"({"data": {"dir": "/d"}, "epochs": 3})", "train.json", "/", {}); }
  static std::vector<std::string> checkpoints_in(const fs::path& root) {
    std::vector<std::string> names;
    for (const fs::path& path : published_checkpoints(RunLayout{root})) names.push_back(path.filename().string());
    return names;
  }
  int remake() { return remade_ = remake_moved_run(root_, identity_, lock_, to_json_text(config())); }

  TemporaryFolder folder_;
  fs::path root_ = folder_ / "run";
  int lock_ = -1;
  int remade_ = -1;
  DirectoryIdentity identity_;
};

TEST_F(MovedRun, NewFolderGetsTermConfigAndNewestCheckpoint) {
  fs::rename(root_, folder_ / "moved");
  ASSERT_GE(remake(), 0);
  EXPECT_EQ(read_run_term(root_), 3) << "a higher one would end the survivors, a lower one their replacements";
  EXPECT_TRUE(run_lock_is_held(root_));
  EXPECT_EQ(read_text(root_ / "config.json"), to_json_text(config()));
  const RunLayout layout{root_};
  EXPECT_EQ(checkpoints_in(root_), std::vector<std::string>{"step-000000040"});
  EXPECT_EQ(read_text(layout.checkpoint(40) / "manifest.json"), "40");
  EXPECT_TRUE(fs::exists(layout.run()));
  EXPECT_EQ(checkpoints_in(folder_ / "moved").size(), 2u);
  // When the job starts the next time, it resumes from the new folder, and its term is higher by one.
  ::close(std::exchange(remade_, -1));
  const RunState next = open_run_directory(root_, config(), FreshStart::kNo);
  EXPECT_EQ(read_run_term(root_), 4);
  ::close(next.lock_fd);
}

TEST_F(MovedRun, RemovedFolderIsRecreatedEmpty) {
  fs::remove_all(root_);
  ASSERT_GE(remake(), 0);
  EXPECT_EQ(read_run_term(root_), 3);
  EXPECT_TRUE(checkpoints_in(root_).empty());
}

// `rm -r` first removes the files and then the folder. If we created a file in between, the final rmdir would fail.
TEST_F(MovedRun, NothingIsCreatedWhileTheOldFolderExists) {
  fs::remove(root_ / "lock");
  EXPECT_EQ(remake(), -1);
  EXPECT_FALSE(fs::exists(root_ / "lock"));
}

TEST_F(MovedRun, AnotherJobInTheFolderIsLeftAlone) {
  fs::rename(root_, folder_ / "moved");
  const RunState other = open_run_directory(root_, config(), FreshStart::kNo);
  EXPECT_EQ(remake(), -1);
  EXPECT_EQ(read_run_term(root_), 1);
  ::close(other.lock_fd);
}

TEST_F(MovedRun, PublishedCheckpointsStay) {
  fs::rename(root_, folder_ / "moved");
  write_text(RunLayout{root_}.checkpoint(60) / "manifest.json", "60");
  ASSERT_GE(remake(), 0);
  EXPECT_EQ(checkpoints_in(root_), std::vector<std::string>{"step-000000060"});
}

TEST_F(MovedRun, TermComesFromTheClaimWithoutALock) {
  fs::remove(root_ / "lock");
  EXPECT_EQ(read_run_term(root_), 3) << "else a replacement would be refused as an earlier start";
}

}  // namespace
}  // namespace ddprun
