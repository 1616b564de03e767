// Injects faults while a checkpoint is written: the writer is killed at each stage, or the disk is full or read-only. After
// each fault the older checkpoints are valid, no incomplete checkpoint is visible, and the next save succeeds.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <system_error>

#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/sample_state.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/writer_claim.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

std::vector<std::string> temporaries(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".")) names.push_back(name);
  }
  return names;
}

// Returns the steps of the checkpoints in a folder, newest first. Fails the test if a checkpoint is not valid.
std::vector<std::int64_t> valid_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const Candidate& candidate : inspect_checkpoints(folder)) {
    EXPECT_EQ(candidate.problem, "");
    steps.push_back(candidate.step);
  }
  return steps;
}

// Saves step 200 in a child process that SIGKILLs itself at the given stage.
void save_and_die_at(const fs::path& folder, const std::string& stage) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      save_checkpoint(folder, sample_state(200), newest(3), [&](const char* reached) {
        if (stage == reached) ::kill(::getpid(), SIGKILL);
      });
    } catch (...) {
    }
    ::_exit(1);  // the save did not reach the stage
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "stage " << stage << " was not reached";
}

class KilledWriter : public testing::TestWithParam<const char*> {};

TEST_P(KilledWriter, LosesNothingAndIsCleanedUpByTheNextSave) {
  const std::string stage = GetParam();
  const bool published = stage == "renamed" || stage == "latest-moved";
  TemporaryFolder folder;
  save_checkpoint(folder.path(), sample_state(100), newest(3));

  save_and_die_at(folder.path(), stage);

  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(valid_steps(folder.path()), published ? (Steps{200, 100}) : (Steps{100}));
  EXPECT_TRUE(fs::exists(folder / "latest" / "manifest.json"));
  EXPECT_EQ(temporaries(folder.path()).size(), published ? 0U : 1U);

  save_checkpoint(folder.path(), sample_state(200), newest(3));
  EXPECT_EQ(valid_steps(folder.path()), (Steps{200, 100}));
  EXPECT_TRUE(same_state(load_checkpoint(folder / "latest" / "../step-000000200"), sample_state(200)));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-000000200");
  EXPECT_TRUE(temporaries(folder.path()).empty());
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, KilledWriter,
                         testing::Values("model-half", "model-written", "optimizer-written", "manifest-written", "renamed",
                                         "latest-moved"),
                         [](const testing::TestParamInfo<const char*>& param) {
                           std::string name = param.param;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

TEST(LiveWriter, KeepsItsFolderWhileAnotherSaves) {
  TemporaryFolder folder;
  bool nested = false;
  save_checkpoint(folder.path(), sample_state(100), newest(3), [&](const char* stage) {
    if (std::strcmp(stage, "model-half") == 0 && !nested) {
      nested = true;
      save_checkpoint(folder.path(), sample_state(50), newest(3));
    }
  });

  EXPECT_TRUE(nested);
  EXPECT_EQ(valid_steps(folder.path()), (std::vector<std::int64_t>{100, 50}));
}

// Limits the size of files that this process writes. A write beyond `bytes` fails as on a full disk, but with EFBIG.
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

void expect_unchanged_after_failure(const fs::path& checkpoints, std::error_code code, const CheckpointState& state) {
  try {
    save_checkpoint(checkpoints, state, newest(3));
    FAIL() << "saved where it could not";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(checkpoints.string()), std::string::npos) << error.what();
  }
  EXPECT_EQ(valid_steps(checkpoints), (std::vector<std::int64_t>{100}));
  EXPECT_TRUE(temporaries(checkpoints).empty());
  EXPECT_EQ(fs::read_symlink(checkpoints / "latest"), "step-000000100");
}

TEST(FailingWrite, NamesThePathAndChangesNothing) {
  TemporaryFolder folder;
  save_checkpoint(folder.path(), sample_state(100), newest(3));
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{100}, rlim_t{300}}) {
    const FileSizeLimit limit(bytes);
    expect_unchanged_after_failure(folder.path(), std::make_error_code(std::errc::file_too_large), sample_state(200));
  }
  EXPECT_EQ(save_checkpoint(folder.path(), sample_state(200), newest(3)).note, "");
}

// Mounts a small file system in memory, if this process is allowed to mount one.
class SmallDisk {
 public:
  explicit SmallDisk(const char* options) { mounted_ = ::mount("none", folder_.path().c_str(), "tmpfs", 0, options) == 0; }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  void make_read_only() { ASSERT_EQ(::mount("none", folder_.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0); }
  fs::path path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

TEST(FullDisk, KeepsTheOlderCheckpoint) {
  SmallDisk disk("size=64k");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs";
  save_checkpoint(disk.path() / "c", sample_state(100), newest(3));
  CheckpointState large = sample_state(200);
  large.model.push_back({"big", at::full({50'000}, 1.0, at::kFloat)});

  expect_unchanged_after_failure(disk.path() / "c", std::make_error_code(std::errc::no_space_on_device), large);

  save_checkpoint(disk.path() / "c", sample_state(200), newest(3));
  EXPECT_EQ(valid_steps(disk.path() / "c"), (std::vector<std::int64_t>{200, 100}));
}

// A killed writer may itself have filled the disk. The next writer must then remove the incomplete files of the killed writer
// before it can write anything.
TEST(FullDisk, RemovesLeftoversOfAKilledWriterForSpace) {
  SmallDisk disk("size=64k");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs";
  const fs::path folder = disk.path() / "c";
  save_checkpoint(folder, sample_state(100), newest(3));
  test::write_text(folder / ".tmp-step-000000200-77/model.safetensors", std::string(64'000, 'x'));
  WriterClaim claim(folder, {.term = 1});

  EXPECT_EQ(claim.take(), "");
  save_checkpoint(folder, sample_state(200), newest(3));
  EXPECT_EQ(valid_steps(folder), (std::vector<std::int64_t>{200, 100}));
}

TEST(ReadOnlyDisk, Throws) {
  SmallDisk disk("size=64k");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs";
  save_checkpoint(disk.path() / "c", sample_state(100), newest(3));
  disk.make_read_only();

  expect_unchanged_after_failure(disk.path() / "c", std::make_error_code(std::errc::read_only_file_system), sample_state(200));
}

TEST(CheckpointFolder, MustNotBeAFile) {
  TemporaryFolder folder;
  test::write_text(folder / "checkpoints", "not a folder");
  try {
    save_checkpoint(folder / "checkpoints", sample_state(1), newest(3));
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find("checkpoints"), std::string::npos);
  }
}

}  // namespace
}  // namespace ddprun::trainer
