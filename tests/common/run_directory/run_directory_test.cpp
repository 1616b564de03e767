// Tests which processes may open a run directory, with which config, and which state they find in it. The lock files name
// real processes, which are running or have exited.
#include "common/run_directory/run_directory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_lock.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using test::read_text;
using test::TemporaryFolder;
using test::write_text;

TrainConfig config_with(const std::vector<std::string>& overrides = {}) {
  return parse_config(R"({"data": {"dir": "/d"}, "epochs": 3})", "train.json", "/", overrides);
}

// Opens the run directory and closes it again. After that, the directory is in the same state as if a process of the run had
// ended.
RunState opened(const std::filesystem::path& root, const TrainConfig& config = config_with(),
                FreshStart fresh = FreshStart::kNo) {
  RunState state = open_run_directory(root, config, fresh);
  EXPECT_GE(state.lock_fd, 0);
  ::close(state.lock_fd);
  return state;
}

std::string refused_folder(const std::filesystem::path& root, const TrainConfig& config = config_with(),
                           FreshStart fresh = FreshStart::kNo) {
  try {
    opened(root, config, fresh);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

void add_checkpoint(const std::filesystem::path& root, std::int64_t step, bool finished, std::int64_t epochs,
                    std::int64_t max_steps = 0) {
  const RunLayout layout{root};
  write_text(layout.checkpoint(step) / "manifest.json", nlohmann::json{{"step", step},
                                                                       {"finished", finished},
                                                                       {"total_steps", step},
                                                                       {"config_epochs", epochs},
                                                                       {"config_max_steps", max_steps}}
                                                            .dump());
  std::filesystem::remove(layout.checkpoints() / "latest");
  std::filesystem::create_symlink(layout.checkpoint(step).filename(), layout.checkpoints() / "latest");
}

TEST(RunLayout, Paths) {
  const RunLayout layout{"/runs/a"};
  EXPECT_EQ(layout.checkpoint(400), "/runs/a/checkpoints/step-000000400");
  EXPECT_EQ(layout.config(), "/runs/a/config.json");
}

TEST(RunDirectory, IsCreatedWithItsConfig) {
  const TemporaryFolder folder;
  const RunState state = opened(folder / "runs/a/");
  EXPECT_EQ(state.layout.root, folder / "runs/a");
  EXPECT_FALSE(state.resumed);
  EXPECT_FALSE(state.finished);
  EXPECT_FALSE(state.latest_step.has_value());
  EXPECT_EQ(state.renamed_to, "");
  EXPECT_EQ(state.notes, "");
  EXPECT_EQ(read_text(folder / "runs/a/config.json"), to_json_text(config_with()));
}

TEST(RunDirectory, IsContinuedWithTheSameConfig) {
  const TemporaryFolder folder;
  opened(folder / "a");
  add_checkpoint(folder / "a", 400, false, 3);
  const RunState state = opened(folder / "a");
  EXPECT_TRUE(state.resumed);
  EXPECT_EQ(state.latest_step, 400);
  EXPECT_FALSE(state.finished);
}

TEST(RunDirectory, UserFilesInARunAreAccepted) {
  const TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/notes.txt", "looks good");
  EXPECT_TRUE(opened(folder / "a").resumed);
}

TEST(RunDirectory, AnotherConfigIsRefusedWithBothValues) {
  const TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/metrics.jsonl", "{}");
  EXPECT_EQ(refused_folder(folder / "a", config_with({"optimizer.lr=0.5", "seed=7", "epochs=9"})),
            "run directory " + (folder / "a").string() +
                " belongs to another config:\n  /seed: 0 before, 7 now\n  /optimizer/lr: 0.001 before, 0.5 now\nUse --fresh to "
                "keep it under another name and start over, or choose another --run-dir.");
  EXPECT_EQ(read_text(folder / "a/config.json"), to_json_text(config_with())) << "a refusal changes nothing";
}

// The first invocation failed before any step, for example because of a wrong path in the config. The user must be able to fix
// the path without --fresh.
TEST(RunDirectory, UntrainedRunAcceptsAnotherConfig) {
  const TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/logs/round-000/rank-00000/stderr.log", "data set missing");
  write_text(folder / "a/report.json", "{}");
  std::filesystem::create_directories(folder / "a/tensorboard");
  const TrainConfig config = config_with({"seed=7"});
  EXPECT_EQ(opened(folder / "a", config).notes, "");
  EXPECT_EQ(read_text(folder / "a/config.json"), to_json_text(config));
  for (const char* result :
       {"run.json", "metrics.jsonl", "checkpoints/step-000000001/manifest.json", "ledger/rank-00000.jsonl"}) {
    write_text(folder / "a" / result, "{}");
    EXPECT_NE(refused_folder(folder / "a", config_with({"seed=8"})).find("belongs to another config"), std::string::npos)
        << result;
    std::filesystem::remove_all(folder / "a" / std::filesystem::path(result).begin()->string());
  }
  write_text(folder / "a/config.json", "{");
  opened(folder / "a", config);
}

TEST(RunDirectory, EmptyFoldersAreAccepted) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a/lost+found");
  std::filesystem::create_directories(folder / "a/tensorboard");
  std::filesystem::create_directories(folder / "scratch");
  std::filesystem::create_directory_symlink(folder / "scratch", folder / "a/checkpoints");
  EXPECT_FALSE(opened(folder / "a").resumed);
}

TEST(RunDirectory, ExamineRefusesTheSameAndWritesNothing) {
  const TemporaryFolder folder;
  const auto examine = [&](const std::filesystem::path& root, FreshStart fresh = FreshStart::kNo) -> std::string {
    try {
      examine_run_directory(root, config_with({"seed=7"}), fresh);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(examine(folder / "a"), "");
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  const RunState running = open_run_directory(folder / "a", config_with(), FreshStart::kNo);
  write_text(folder / "a/metrics.jsonl", "{}");
  EXPECT_EQ(examine(folder / "a"), refused_folder(folder / "a", config_with({"seed=7"})));
  EXPECT_NE(examine(folder / "a").find("is in use by a live run (process "), std::string::npos);
  ::close(running.lock_fd);
  EXPECT_NE(examine(folder / "a").find("belongs to another config"), std::string::npos);
  EXPECT_EQ(examine(folder / "a", FreshStart::kRename), "");
  EXPECT_EQ(read_text(folder / "a/config.json"), to_json_text(config_with()));
  EXPECT_NE(examine(folder / "a/metrics.jsonl").find("is a file, expected a folder"), std::string::npos);
  write_text(folder / "home/thesis.txt", "precious");
  EXPECT_NE(examine(folder / "home").find("is not a run directory"), std::string::npos);
}

TEST(RunDirectory, DanglingLinkIsReported) {
  const TemporaryFolder folder;
  std::filesystem::create_directory_symlink(folder / "gone", folder / "a");
  EXPECT_EQ(refused_folder(folder / "a"), "run directory " + (folder / "a").string() + " is a link to " +
                                              (folder / "gone").string() +
                                              ", which does not exist: create that folder or choose another --run-dir");
}

TEST(RunDirectory, HarmlessDifferencesAreNotedAndWritten) {
  const TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/metrics.jsonl", "{}");
  const TrainConfig config = config_with({"epochs=5", "checkpoint.keep=9"});
  EXPECT_EQ(opened(folder / "a", config).notes, "/epochs changed from 3 to 5\n/checkpoint/keep changed from 3 to 9");
  EXPECT_EQ(read_text(folder / "a/config.json"), to_json_text(config));
}

TEST(RunDirectory, FinishedDependsOnThisConfig) {
  const TemporaryFolder folder;
  opened(folder / "a");
  add_checkpoint(folder / "a", 1407, true, 3);
  EXPECT_TRUE(opened(folder / "a").finished);
  EXPECT_TRUE(opened(folder / "a", config_with({"epochs=2"})).finished);
  EXPECT_TRUE(opened(folder / "a", config_with({"max_steps=100"})).finished);
  EXPECT_FALSE(opened(folder / "a", config_with({"epochs=4"})).finished);

  opened(folder / "b");
  add_checkpoint(folder / "b", 100, true, 3, 100);
  EXPECT_TRUE(opened(folder / "b", config_with({"max_steps=100"})).finished);
  EXPECT_FALSE(opened(folder / "b", config_with({"max_steps=200"})).finished);
  EXPECT_FALSE(opened(folder / "b", config_with()).finished) << "0 means no limit";
}

// The link `latest` is not reliable: a killed process may leave an old link, and a user may remove it.
TEST(RunDirectory, TheNewestCheckpointIsFoundWithoutALink) {
  const TemporaryFolder folder;
  opened(folder / "a");
  const std::filesystem::path latest = folder / "a/checkpoints/latest";
  add_checkpoint(folder / "a", 50, false, 3);
  add_checkpoint(folder / "a", 100, true, 3);
  for (const char* target : {"", "step-000000050", "nowhere"}) {
    std::filesystem::remove(latest);
    if (*target != '\0') std::filesystem::create_symlink(target, latest);
    EXPECT_EQ(opened(folder / "a").latest_step, 100) << target;
    EXPECT_TRUE(opened(folder / "a").finished) << target;
  }
  write_text(folder / "a/checkpoints/step-000000200/manifest.json", "torn");
  write_text(folder / "a/checkpoints/step-000000300.bad/manifest.json", "{\"step\": 300}");
  EXPECT_EQ(opened(folder / "a").latest_step, 100);
}

// A finished run does not load its checkpoint, so its files are checked only when the run directory is opened.
TEST(RunDirectory, RunIsFinishedOnlyByACompleteCheckpoint) {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder / "a";
  opened(root);
  add_checkpoint(root, 100, true, 3);
  add_checkpoint(root, 200, true, 3);
  const std::filesystem::path newest = RunLayout{root}.checkpoint(200), manifest = newest / "manifest.json";
  auto edited = nlohmann::json::parse(read_text(manifest));
  edited["files"]["model.safetensors"] = {{"bytes", 3}};
  write_text(manifest, edited.dump());
  const auto expect_the_older = [&](const std::string& problem) {
    const RunState state = opened(root);
    EXPECT_TRUE(state.finished);
    EXPECT_EQ(state.latest_step, 100);
    EXPECT_EQ(state.notes, "the newest checkpoint is damaged: " + problem + "; " + RunLayout{root}.checkpoint(100).string() +
                               " is used instead");
  };
  expect_the_older((newest / "model.safetensors").string() + ": No such file or directory");
  write_text(newest / "model.safetensors", "four");
  expect_the_older((newest / "model.safetensors").string() + " has 4 bytes, but its manifest lists 3");
  write_text(newest / "model.safetensors", "yes");
  EXPECT_EQ(opened(root).latest_step, 200);
  EXPECT_EQ(opened(root).notes, "");
  std::filesystem::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);  // a FIFO: without a check, opening it would block
  expect_the_older(manifest.string() + " cannot be read");
}

TEST(RunDirectory, PipeInPlaceOfAFileDoesNotBlock) {
  const TemporaryFolder folder;
  opened(folder / "a");
  for (const auto& [name, fragment] : {std::pair("config.json", " is not a regular file: expected the run's config file"),
                                       std::pair("lock", " is a link or not a regular file")}) {
    const std::filesystem::path file = folder / "a" / name;
    std::filesystem::rename(file, folder / "kept");
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_NE(refused_folder(folder / "a").find(fragment), std::string::npos) << refused_folder(folder / "a");
    EXPECT_FALSE(run_lock_is_held(folder / "a"));
    EXPECT_GE(read_run_term(folder / "a"), 0);
    std::filesystem::rename(folder / "kept", file);
  }
  EXPECT_TRUE(opened(folder / "a").resumed);
}

TEST(RunDirectory, EachHolderHasAHigherTerm) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_run_term(folder / "a"), 0);
  for (const std::int64_t term : {1, 2, 3}) {
    opened(folder / "a");
    EXPECT_EQ(read_run_term(folder / "a"), term);
  }
}

TEST(RunDirectory, BrokenManifestHasNoLatestStep) {
  const TemporaryFolder folder;
  opened(folder / "a");
  for (const std::string text :
       {"", "{", "[]", "{\"step\": \"x\", \"finished\": true, \"config_epochs\": 3, \"config_max_steps\": 0}"}) {
    write_text(folder / "a/checkpoints/latest/manifest.json", text);
    const RunState state = opened(folder / "a");
    EXPECT_FALSE(state.latest_step.has_value()) << text;
    EXPECT_FALSE(state.finished) << text;
  }
}

TEST(RunDirectory, FreshRenamesAndNeverDeletes) {
  const TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/metrics.jsonl", "first");
  EXPECT_EQ(opened(folder / "a", config_with({"seed=1"}), FreshStart::kRename).renamed_to, (folder / "a.1").string());
  EXPECT_EQ(read_text(folder / "a.1/metrics.jsonl"), "first");
  EXPECT_FALSE(std::filesystem::exists(folder / "a/metrics.jsonl"));
  write_text(folder / "a/metrics.jsonl", "second");
  const RunState again = opened(folder / "a", config_with({"seed=2"}), FreshStart::kRename);
  EXPECT_EQ(again.renamed_to, (folder / "a.2").string());
  EXPECT_FALSE(again.resumed);
  EXPECT_TRUE(opened(folder / "a", config_with({"seed=2"})).resumed);
}

TEST(RunDirectory, FreshRenamesTheTargetOfALink) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "disk");
  std::filesystem::create_directory_symlink(folder / "disk", folder / "link");
  opened(folder / "link", config_with({"seed=1"}));
  write_text(folder / "disk/run.json", "{}");
  const RunState again = opened(folder / "link", config_with({"seed=2"}), FreshStart::kRename);
  EXPECT_EQ(again.renamed_to, std::filesystem::canonical(folder / "disk").string() + ".1");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(std::filesystem::exists(folder / "disk" / "config.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "disk.1" / "config.json"));
}

// --fresh renames the old folder only if the run has trained. Without this rule, seven attempts with a wrong path would leave
// seven renamed folders.
TEST(RunDirectory, FreshKeepsAnUntrainedRun) {
  const TemporaryFolder folder;
  opened(folder / "a", config_with({"seed=1"}));
  for (const char* name : {"report.json", "worker.json", "logs/round-000/rank-00000/stderr.log"})
    write_text(folder / "a" / name, "{}");
  const RunState again = opened(folder / "a", config_with({"seed=2"}), FreshStart::kRename);
  EXPECT_EQ(again.renamed_to, "");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.1"));
  EXPECT_EQ(read_text(folder / "a/config.json"), to_json_text(config_with({"seed=2"})));
  write_text(folder / "a/run.json", "{}");
  EXPECT_EQ(opened(folder / "a", config_with({"seed=2"}), FreshStart::kRename).renamed_to, (folder / "a.1").string())
      << "it exists from the moment that training starts: local copies of checkpoints may be elsewhere";
}

TEST(RunDirectory, FreshOfAMissingRunRenamesNothing) {
  const TemporaryFolder folder;
  EXPECT_EQ(opened(folder / "a", config_with(), FreshStart::kRename).renamed_to, "");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.1"));
}

TEST(RunDirectory, LiveRunIsReportedAndNotRenamed) {
  const TemporaryFolder folder;
  const RunState running = open_run_directory(folder / "a", config_with(), FreshStart::kNo);
  EXPECT_NE(::fcntl(running.lock_fd, F_GETFD) & FD_CLOEXEC, 0);
  const auto holder = nlohmann::json::parse(read_text(folder / "a/lock"));
  const std::string expected = "run directory " + (folder / "a").string() + " is in use by a live run (process " +
                               std::to_string(::getpid()) + " on " + holder.at("host").get<std::string>() + ", since " +
                               holder.at("started").get<std::string>() + "): wait for it, stop it, or choose another --run-dir";
  EXPECT_EQ(refused_folder(folder / "a"), expected);
  EXPECT_EQ(refused_folder(folder / "a", config_with(), FreshStart::kRename), expected);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.1"));
  ::close(running.lock_fd);
  EXPECT_TRUE(opened(folder / "a").resumed);
}

TEST(RunDirectory, HolderWithoutANameYet) {
  const TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/lock", "{\"ho");
  const int other = ::open((folder / "a/lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(refused_folder(folder / "a"),
            "run directory " + (folder / "a").string() +
                " is in use by a live run (another process): wait for it, stop it, or choose another --run-dir");
  ::close(other);
}

std::int64_t term_of(const std::filesystem::path& root) {
  return nlohmann::json::parse(read_text(root / "lock")).at("term").get<std::int64_t>();
}

// Each invocation gets a higher term (a number in the lock file) than the invocation before. The lock file may be missing,
// because users remove a lock that seems stale. Therefore the checkpoint folder records the term of its last writer too. A
// process with a lower term could not publish checkpoints.
TEST(RunDirectory, RemovedLockKeepsTheTerm) {
  TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) opened(folder / "a");
  write_text(folder / "a/checkpoints/.writer", R"({"host": "x", "pid": 1, "time_ns": 1, "term": 3, "restart": 1})");
  std::filesystem::remove(folder / "a/lock");
  opened(folder / "a");
  EXPECT_EQ(term_of(folder / "a"), 4);
  write_text(folder / "a/lock", "");  // the lock file is empty, as after a full disk or a crash
  write_text(folder / "a/checkpoints/.writer", R"({"host": "x", "pid": 1, "time_ns": 1, "term": 4, "restart": 0})");
  opened(folder / "a");
  EXPECT_EQ(term_of(folder / "a"), 5);
}

TEST(RunDirectory, LongerOldHolderDoesNotChangeTheTerm) {
  TemporaryFolder folder;
  opened(folder / "a");
  const std::string text = read_text(folder / "a/lock");
  // A process was killed after it had overwritten a longer text in the lock file, but before it truncated the file. So the end
  // of the longer text remains.
  write_text(folder / "a/lock", text + R"(:00Z","term":17})");
  opened(folder / "a");
  EXPECT_EQ(term_of(folder / "a"), 2);
}

TEST(RunDirectory, LockProbeDoesNotDisturbAStart) {
  TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/lock", "");  // names no holder, so no dead holder can be detected
  const int shared_lock = ::open((folder / "a/lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(shared_lock, LOCK_SH | LOCK_NB), 0);
  auto start = std::async(std::launch::async, [&] { opened(folder / "a"); });
  EXPECT_EQ(start.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  ::close(shared_lock);
  start.get();
}

// Two processes check the free lock at the same time. If one check locked the file exclusively, the other check would report
// that a run is active.
TEST(RunDirectory, LockProbesDoNotSeeEachOther) {
  const TemporaryFolder folder;
  opened(folder / "a");
  const int shared_lock = ::open((folder / "a/lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(shared_lock, LOCK_SH | LOCK_NB), 0);
  EXPECT_FALSE(run_lock_is_held(folder / "a"));
  EXPECT_NO_THROW(refuse_held_run(folder / "a"));
  ::close(shared_lock);
  const RunState run = open_run_directory(folder / "a", config_with(), FreshStart::kNo);
  EXPECT_TRUE(run_lock_is_held(folder / "a"));
  EXPECT_THROW(refuse_held_run(folder / "a"), UsageError);
  ::close(run.lock_fd);
  EXPECT_FALSE(run_lock_is_held(folder / "a"));
}

// The agent was killed. The guardian process keeps the lock until it has ended the agent's workers, so the next invocation
// must wait.
TEST(RunDirectory, StartWaitsForTheGuardianOfADeadRun) {
  const TemporaryFolder folder;
  opened(folder / "a");
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  auto holder = nlohmann::json::parse(read_text(folder / "a/lock"));
  holder["pid"] = dead;
  write_text(folder / "a/lock", holder.dump());
  const int guardian = ::open((folder / "a/lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(guardian, LOCK_EX | LOCK_NB), 0);
  auto next = std::async(std::launch::async, [&] { return opened(folder / "a").resumed; });
  ::close(guardian);
  EXPECT_TRUE(next.get());
}

TEST(RunDirectory, FoldersWithOtherFilesAreRefusedUntouched) {
  const TemporaryFolder folder;
  for (const char* name : {"thesis.txt", "b", "c", "d", "e"}) write_text(folder / "home" / name, "precious");
  const std::string expected =
      (folder / "home").string() +
      " is not a run directory: it contains files from other programs (b, c, d and 2 more); choose another --run-dir";
  EXPECT_EQ(refused_folder(folder / "home"), expected);
  EXPECT_EQ(refused_folder(folder / "home", config_with(), FreshStart::kRename), expected);
  EXPECT_FALSE(std::filesystem::exists(folder / "home/lock"));
  write_text(folder / "home/config.json", "{}");
  EXPECT_EQ(refused_folder(folder / "home", config_with(), FreshStart::kRename), expected) << "another program's config.json";
}

TEST(RunDirectory, ResultsWithoutAConfigAreRefusedAndFreshKeepsThem) {
  const TemporaryFolder folder;
  write_text(folder / "a/checkpoints/x", "");
  EXPECT_EQ(refused_folder(folder / "a"),
            "run directory " + (folder / "a").string() +
                " has checkpoints but no config.json, so ddprun cannot check that this folder belongs to the same config: use "
                "--fresh to keep the folder under another name and start over, or choose another --run-dir");
  EXPECT_EQ(opened(folder / "a", config_with(), FreshStart::kRename).renamed_to, (folder / "a.1").string());
}

TEST(RunDirectory, AConfigThatCannotBeReadIsRefusedAndFreshKeepsIt) {
  const TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/metrics.jsonl", "{}");
  write_text(folder / "a/config.json", "{");
  const std::string message = refused_folder(folder / "a");
  EXPECT_TRUE(
      message.starts_with("run directory " + (folder / "a").string() + " has a config.json that cannot be read: use --fresh"))
      << message;
  EXPECT_NE(message.find("config.json:1:2: expected a key"), std::string::npos) << message;
  EXPECT_EQ(opened(folder / "a", config_with(), FreshStart::kRename).renamed_to, (folder / "a.1").string());
}

TEST(RunDirectory, LeftoversOfAKilledStartAreAccepted) {
  const TemporaryFolder folder;
  write_text(folder / "a/lock", "");
  write_text(folder / "a/token", "t");
  write_text(folder / "a/..token.tmp-7.tmp-7-1", "t");
  write_text(folder / "a/.config.json.tmp-1-0", "{");
  EXPECT_FALSE(opened(folder / "a").resumed);
}

TEST(RunDirectory, FileInPlaceOfTheRunDirectory) {
  const TemporaryFolder folder;
  write_text(folder / "a", "x");
  EXPECT_EQ(refused_folder(folder / "a"),
            "run directory " + (folder / "a").string() + " is a file, expected a folder: choose another --run-dir");
  EXPECT_EQ(refused_folder(folder / "a/b"), "cannot create run directory " + (folder / "a/b").string() +
                                                ": Not a directory; fix the cause or choose another --run-dir");
}

TEST(RunDirectory, FileInPlaceOfTheCheckpoints) {
  const TemporaryFolder folder;
  opened(folder / "a");
  write_text(folder / "a/checkpoints", "mine");
  EXPECT_EQ(refused_folder(folder / "a"),
            (folder / "a/checkpoints").string() +
                " must be the run's checkpoint folder, found a file: move it away, use --fresh to keep the run directory under "
                "another name and start over, or choose another --run-dir");
  EXPECT_FALSE(opened(folder / "a", config_with(), FreshStart::kRename).resumed);
  std::filesystem::create_directory_symlink(folder / "disk", folder / "a/checkpoints");
  EXPECT_NE(refused_folder(folder / "a").find("found a link to " + (folder / "disk").string() + ", which does not exist: "),
            std::string::npos);
  std::filesystem::create_directory(folder / "disk");
  EXPECT_TRUE(opened(folder / "a").resumed);  // checkpoints may be a link to a larger disk
}

// In /proc no user can create a folder, not even root.
TEST(RunDirectory, UnwritableFolderIsReported) {
  const std::string message = refused_folder("/proc/ddprun-run");
  EXPECT_TRUE(message.starts_with("cannot create run directory /proc/ddprun-run: ")) << message;
  EXPECT_TRUE(message.ends_with("; fix the cause or choose another --run-dir")) << message;
}

// local_dir must not be inside the run directory, because its copies of checkpoints are needed if the run directory is lost.
TEST(RunDirectory, LocalDirInsideTheRunIsRefusedFirst) {
  const TemporaryFolder folder;
  const auto with_local_dir = [](const std::filesystem::path& path) {
    return config_with({"checkpoint.local_dir=" + path.string()});
  };
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_directory_symlink(folder / "real", folder / "link");
  for (const char* inside : {"real/run", "real/run/checkpoints", "link/run/x", "real/other/../run"}) {
    EXPECT_NE(refused_folder(folder / "real/run", with_local_dir(folder / inside)).find("is inside the run directory"),
              std::string::npos)
        << inside;
    EXPECT_FALSE(std::filesystem::exists(folder / "real/run"));
  }
  for (const char* local_dir : {"real", "real/run-2", "copies"})
    opened(folder / "real/run", with_local_dir(folder / local_dir));
}

}  // namespace
}  // namespace ddprun
