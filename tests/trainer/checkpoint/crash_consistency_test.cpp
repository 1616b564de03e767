// Makes each file operation of a save fail in turn. The faults are: an error of one call, a disk that is full from that call
// on, a short write, and SIGKILL. After each fault the folder must be consistent. Published checkpoints are valid, a run finds
// the previous or the new checkpoint, and the next writer works normally.
#include <gtest/gtest.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/magic.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <system_error>

#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/failing_calls.hpp"
#include "tests/trainer/checkpoint/sample_state.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/writer_claim.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::CallFault;
using test::RecordedCall;
using Kind = CallFault::Kind;

// A temporary folder of this process, on the ordinary file system or in memory.
class Place {
 public:
  explicit Place(const fs::path& root) {
    std::string name = (root / "ddprun-crash-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("can't make a folder in " + root.string());
    path_ = name;
  }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

bool is_in_memory(const fs::path& path) {
  struct statfs status {};
  return ::statfs(path.c_str(), &status) == 0 && status.f_type == TMPFS_MAGIC;
}

// The parent of a new folder must be synced. Without this sync, a power loss can remove the folder together with its
// checkpoints.
TEST(CrashConsistency, ANewCheckpointFolderIsSyncedInItsParent) {
  const Place place(fs::temp_directory_path());
  const auto is_synced_by = [](const fs::path& parent, const std::function<void(const fs::path&)>& act) {
    test::watch(parent);
    act(parent / "checkpoints");
    const std::vector<RecordedCall> calls = test::stop_watching();
    return std::ranges::any_of(calls, [](const RecordedCall& call) { return call.name == "fsync" && call.path.empty(); });
  };
  const auto save = [](const fs::path& folder) { save_checkpoint(folder, sample_state(400), newest(2)); };
  // When a run starts, it claims the checkpoint folder, so that it is the only writer.
  const auto claim = [](const fs::path& folder) { WriterClaim(folder, {.term = 1}).take(); };
  for (const char* name : {"saved", "claimed"}) fs::create_directory(place / name);
  EXPECT_TRUE(is_synced_by(place / "saved", save));
  EXPECT_FALSE(is_synced_by(place / "saved", save)) << "it is not new";
  EXPECT_TRUE(is_synced_by(place / "claimed", claim));
  EXPECT_FALSE(is_synced_by(place / "claimed", save)) << "it is not new";
}

// Does everything that a writer does: claims the folder and saves one checkpoint.
SaveResult claim_and_save(const fs::path& folder, std::int64_t step, std::int64_t restart) {
  WriterClaim claim(folder, {.term = 1, .restart = restart});
  claim.take();
  return save_checkpoint(folder, sample_state(step), newest(2), [&](const char* stage) {
    if (std::strcmp(stage, "model-half") != 0) claim.check();
  });
}

// Claims the folder and saves without injected faults. Syncs are skipped, because they would only cost time.
SaveResult claim_and_save_without_error(const fs::path& folder, std::int64_t step, std::int64_t restart) {
  test::watch(folder);
  SaveResult result = claim_and_save(folder, step, restart);
  test::stop_watching();
  return result;
}

// Creates a folder with two checkpoints and the incomplete files of a killed writer.
void prepare(const fs::path& folder) {
  claim_and_save_without_error(folder, 100, 0);
  claim_and_save_without_error(folder, 200, 1);
  test::write_text(folder / ".tmp-step-000000300-77/model.safetensors", "half");
}

enum class End { kSaved, kFailed, kKilled, kWrong };

// Saves the checkpoint of step 300 in a child process, with a fault. Returns how the child process ended.
End save_with(const fs::path& folder, const CallFault& fault) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    test::watch(folder, fault);
    try {
      claim_and_save(folder, 300, 2);
    } catch (const std::system_error&) {
      code = 1;
    } catch (...) {
      code = 2;
    }
    ::_exit(code);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return End::kWrong;
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGKILL ? End::kKilled : End::kWrong;
  return WEXITSTATUS(status) == 0 ? End::kSaved : WEXITSTATUS(status) == 1 ? End::kFailed : End::kWrong;
}

std::vector<RecordedCall> calls_of_save(const fs::path& folder) {
  prepare(folder);
  test::watch(folder);
  claim_and_save(folder, 300, 2);
  return test::stop_watching();
}

void expect_consistent(const fs::path& folder, End end) {
  const std::vector<Candidate> found = inspect_checkpoints(folder);
  ASSERT_FALSE(found.empty());
  for (const Candidate& candidate : found) {
    EXPECT_EQ(candidate.problem, "");
    if (candidate.problem.empty()) {
      EXPECT_TRUE(same_state(load_checkpoint(candidate.path), sample_state(candidate.step)));
    }
  }
  EXPECT_TRUE(found.front().step == 300 || (found.front().step == 200 && end != End::kSaved)) << found.front().step;
  EXPECT_TRUE(fs::exists(folder / "latest" / "manifest.json"));
  if (end == End::kSaved) {
    EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-000000300");
  }

  const SaveResult next = claim_and_save_without_error(folder, 400, 3);
  EXPECT_EQ(next.note, "");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  const std::string other = found.front().step == 300 ? "step-000000300" : "step-000000200";
  EXPECT_EQ(names, (std::vector<std::string>{".writer", "latest", other, "step-000000400"}));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-000000400");
}

class CrashConsistency : public testing::TestWithParam<const char*> {};

TEST_P(CrashConsistency, HoldsAtEverySystemCall) {
  const fs::path root = std::string(GetParam()) == "disk" ? fs::temp_directory_path() : fs::path("/dev/shm");
  if (std::string(GetParam()) == "memory" && !is_in_memory(root)) GTEST_SKIP() << "/dev/shm is not a tmpfs here";
  std::vector<RecordedCall> calls;
  {
    const Place place(root);
    calls = calls_of_save(place / "checkpoints");
  }
  ASSERT_GT(calls.size(), 60U) << "the layer sees too little";
  const Place base_place(root);
  const fs::path base = base_place / "checkpoints";
  prepare(base);

  int ends[4] = {};
  for (std::size_t call = 0; call < calls.size(); ++call) {
    std::vector<CallFault> faults{{Kind::kFailCall, call, EIO}, {Kind::kKills, call, 0}};
    if (calls[call].needs_space) {
      faults.push_back({Kind::kFailCall, call, ENOSPC});
      faults.push_back({Kind::kFailFromCall, call, ENOSPC});
    }
    if (calls[call].name == "write") {
      faults.push_back({Kind::kShort, call, 0});
      faults.push_back({Kind::kKillInside, call, 0});
    }
    for (const CallFault& fault : faults) {
      SCOPED_TRACE("call " + std::to_string(call) + ": " + calls[call].name + " " + calls[call].path + ", fault " +
                   std::to_string(static_cast<int>(fault.kind)) + " " + std::strerror(fault.error));
      const Place place(root);
      const fs::path folder = place / "checkpoints";
      fs::copy(base, folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
      const End end = save_with(folder, fault);
      ++ends[static_cast<int>(end)];
      EXPECT_NE(end, End::kWrong);
      EXPECT_EQ(end == End::kKilled, fault.kind == Kind::kKills || fault.kind == Kind::kKillInside);
      if (fault.kind == Kind::kShort) {
        EXPECT_EQ(end, End::kSaved);
      }
      expect_consistent(folder, end);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(ends[static_cast<int>(End::kFailed)], 30);
  EXPECT_GT(ends[static_cast<int>(End::kKilled)], 60);
  std::printf("%zu calls; %d saved in spite of the fault, %d failed, %d killed\n", calls.size(), ends[0], ends[1], ends[2]);
}

INSTANTIATE_TEST_SUITE_P(On, CrashConsistency, testing::Values("disk", "memory"),
                         [](const auto& param) { return std::string(param.param); });

// Tests the protection against power loss. A killed process does not lose data, so this test checks the order of the system
// calls. The content of a file is synced before the file gets its final name, and the new name is synced before an old file is
// removed.
TEST(SaveOrder, SyncsContentBeforeNamesAndNamesBeforeRemovals) {
  const test::TemporaryFolder place;
  const std::vector<RecordedCall> calls = calls_of_save(place / "checkpoints");
  const auto first = [&](auto&& wanted, std::size_t from = 0) {
    for (std::size_t i = from; i < calls.size(); ++i) {
      if (wanted(calls[i])) return i;
    }
    ADD_FAILURE() << "no such call";
    return calls.size();
  };
  const auto is_published = [](const RecordedCall& call) { return call.name == "rename" && call.second == "step-000000300"; };
  const std::size_t published = first(is_published);
  ASSERT_LT(published, calls.size());
  const std::string temporary = calls[published].path;

  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/manifest.json", ""}) {
    SCOPED_TRACE("file '" + std::string(file) + "'");
    std::size_t last_write = 0, last_sync = 0;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].path != temporary + file) continue;
      if (calls[i].name == "write") last_write = i;
      if (calls[i].name == "fsync") last_sync = i;
    }
    EXPECT_GT(last_sync, last_write);
    EXPECT_LT(last_sync, published);
  }
  const auto is_folder_sync = [](const RecordedCall& call) { return call.name == "fsync" && call.path.empty(); };
  const std::size_t named = first(is_folder_sync, published);
  const std::size_t link_moved =
      first([](const RecordedCall& call) { return call.name == "rename" && call.second == "latest"; });
  const std::size_t link_synced = first(is_folder_sync, link_moved);
  const std::size_t removed =
      first([](const RecordedCall& call) { return call.name == "rename" && call.path == "step-000000100"; });
  EXPECT_LT(named, link_moved);
  EXPECT_LT(link_synced, removed);
}

}  // namespace
}  // namespace ddprun::trainer
