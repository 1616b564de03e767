// Tests how several ranks choose the checkpoint from which they resume. Run directories may be shared or separate, and nodes
// may have copies on their own disks. Checkpoints may be damaged or belong to another run. Each rank is a process that reads
// its own folders.
#include "trainer/resume/resume.hpp"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/sample_state.hpp"
#include "tests/trainer/parallel/ranks.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

constexpr const char* kFolder = "DDPRUN_TEST_FOLDER";
constexpr int kRanks = 2;  // each rank is a separate node
constexpr const char* kOther = "bbbbbbbbbbbbbbbb";
const std::vector<int> kBoth{0, 1};

fs::path shared(const fs::path& root) {
  return root / "run" / "checkpoints";
}
fs::path own(const fs::path& root, int rank) {
  return root / ("host-" + std::to_string(rank)) / "run" / "checkpoints";
}
fs::path run_file(const fs::path& checkpoints) {
  return checkpoints.parent_path() / "run.json";
}
fs::path disk(const fs::path& root, int rank) {
  return root / ("disk-" + std::to_string(rank));
}
fs::path copy(const fs::path& root, int rank) {
  return disk(root, rank) / "copy-0";
}
fs::path step(const fs::path& checkpoints, const char* number) {
  return checkpoints / (std::string("step-00000000") + number);
}

// Saves a checkpoint. If `other` is true, its content differs from the normal checkpoint of the same step, as if the run had
// continued differently.
void save(const fs::path& checkpoints, std::int64_t step, bool other = false, const std::string& run = kSampleRun) {
  CheckpointState state = sample_state(step);
  state.run = run;
  if (other) state.model.front().tensor.add_(1);
  save_checkpoint(checkpoints, state, newest(9));
}

void damage(const fs::path& checkpoint) {
  std::ofstream(checkpoint / "model.safetensors", std::ios::app) << 'x';
}

// The result of choose() on this rank.
struct Choice {
  std::optional<ResumeFrom> from;
  RunIdentity run;
  std::string messages;
  std::string refused;
};

// Chooses a checkpoint. `checkpoints` is the folder in this rank's run directory.
Choice choose(
    Rank& rank, const fs::path& checkpoints, const Options& options = {}, int restart_count = 0, const std::string& data = "",
    const std::function<void()>& on_warning = [] {}) {
  const int number = rank.environment.rank;
  const Peers peers(rank.group, number, kRanks, c10::kCPU);
  const CheckpointPlaces places{.run_directory = checkpoints,
                                .local_copies = disk(std::getenv(kFolder), number),
                                .owns_node_disk = true,
                                .run_file = run_file(checkpoints)};
  Choice choice;
  try {
    const ResumeChoice beginning = choose_resume(options, restart_count, places, data, peers, [&](const std::string& text) {
      choice.messages += text + '\n';
      on_warning();
    });
    choice.from = beginning.from;
    choice.run = beginning.run;
    EXPECT_TRUE(choice.run.known());
    EXPECT_EQ(choice.run, run_identity_of(peers.from_rank_0(text_of(choice.run))));
    EXPECT_EQ(choice.run, read_run_identity(places.run_file));
  } catch (const BadCheckpointError& error) {
    choice.refused = error.what();
  } catch (const UsageError& error) {
    choice.refused = error.what();
  }
  peers.barrier();  // waits until all ranks have renamed their folders
  return choice;
}

// In the parent, calls `prepare` to create files, starts the ranks and returns null. In a rank, returns the rank.
std::unique_ptr<Rank> as_node(const std::function<void(const fs::path& root)>& prepare) {
  if (is_rank()) return join_as_rank();
  const TemporaryFolder folder;
  prepare(folder.path());
  start_ranks(kRanks, {}, {{kFolder, folder.path().string()}}, true);
  return nullptr;
}
fs::path root_of_ranks() {
  return std::getenv(kFolder);
}
fs::path shared_of_ranks() {
  return shared(root_of_ranks());
}
fs::path own_dir_of(const Rank& rank) {
  return own(root_of_ranks(), rank.environment.rank);
}

void expect_sent_by_rank_1(const Rank& rank, const Choice& choice, const fs::path& source) {
  ASSERT_TRUE(choice.from) << choice.refused;
  EXPECT_EQ(choice.from->holders, std::vector<int>{1});
  if (rank.environment.rank == 1) {
    EXPECT_EQ(choice.from->path, source);
  } else {
    EXPECT_EQ(choice.from->path, std::nullopt);
  }
}

TEST(Resume, CopiesReplaceLostCheckpoints) {
  const auto rank = as_node([](const fs::path& root) {
    for (const int node : {0, 1}) save(copy(root, node), 8), save(copy(root, node), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(copy(root_of_ranks(), rank->environment.rank), "9"));
  EXPECT_EQ(choice.from->holders, kBoth);
  EXPECT_EQ(choice.run.id, kSampleRun);
  EXPECT_EQ(choice.messages.find("has no valid checkpoint of step 9") != std::string::npos, rank->environment.rank == 0)
      << choice.messages;
}

TEST(Resume, EachRankReadsItsVisibleCopy) {
  const auto rank = as_node([](const fs::path& root) { save(shared(root), 9), save(copy(root, 0), 9); });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared_of_ranks(), "9"));
  EXPECT_EQ(choice.messages, "");
}

TEST(Resume, ADamagedCopyIsSetAside) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 9), save(copy(root, 0), 9), save(copy(root, 1), 9);
    damage(step(copy(root, 1), "9"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared_of_ranks(), "9"));
  EXPECT_EQ(choice.messages.find("step-000000009.bad") != std::string::npos, rank->environment.rank == 1) << choice.messages;
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.bad"));
  EXPECT_TRUE(fs::exists(step(copy(root_of_ranks(), 0), "9")));
}

// The newest checkpoint of the run directory is damaged. Node 1 has a copy of this checkpoint, and node 0 has no copy.
TEST(Resume, AMissingCheckpointIsSent) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 8), save(shared(root), 9), save(copy(root, 1), 9);
    damage(step(shared(root), "9"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  expect_sent_by_rank_1(*rank, choice, step(copy(root_of_ranks(), 1), "9"));
  EXPECT_EQ(choice.messages.find("the checkpoint of rank 1, which sends it") != std::string::npos, rank->environment.rank == 0)
      << choice.messages;
  EXPECT_TRUE(fs::exists(shared_of_ranks() / "step-000000009.bad"));
  EXPECT_EQ(fs::read_symlink(shared_of_ranks() / "latest"), "step-000000008");
}

TEST(Resume, TheNewestCheckpointOfAnyNodeIsUsed) {
  const auto rank = as_node([](const fs::path& root) { save(own(root, 0), 8), save(own(root, 1), 9); });
  if (!rank) return;
  expect_sent_by_rank_1(*rank, choose(*rank, own_dir_of(*rank)), step(own(root_of_ranks(), 1), "9"));
}

// Node 1 was absent while the other nodes resumed from an earlier step. So its copy of step 9 differs from the later
// checkpoint of step 9 on the other nodes.
TEST(Resume, ACopyWithOtherContentIsIgnored) {
  const auto rank = as_node(
      [](const fs::path& root) { save(shared(root), 9), save(copy(root, 0), 9), save(copy(root, 1), 9, /*other=*/true); });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared_of_ranks(), "9"));
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
  EXPECT_TRUE(same_tensors(load_checkpoint(*choice.from->path).model, sample_state(9).model));
}

TEST(Resume, TheLowestRanksCopyWinsIfCopiesDiffer) {
  const auto rank = as_node([](const fs::path& root) { save(copy(root, 0), 9), save(copy(root, 1), 9, /*other=*/true); });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->holders, std::vector<int>{0});
  EXPECT_EQ(choice.from->path.has_value(), rank->environment.rank == 0);
  EXPECT_TRUE(fs::exists(step(copy(root_of_ranks(), 0), "9")));
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
}

TEST(Resume, OnlyBadCheckpointsAreRefusedOnAllRanks) {
  const auto rank = as_node([](const fs::path& root) {
    save(copy(root, 1), 9);
    damage(step(copy(root, 1), "9"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank));
  EXPECT_NE(choice.refused.find("can be used, and starting over would lose the run"), std::string::npos) << choice.refused;
  EXPECT_NE(choice.refused.find(rank->environment.rank == 0 ? "this node has no checkpoints"
                                                            : "step-000000009/model.safetensors has"),
            std::string::npos)
      << choice.refused;
  EXPECT_TRUE(fs::exists(step(copy(root_of_ranks(), 1), "9")));  // no checkpoint was renamed
}

// A byte of the file is changed, but not the file's length. This is detected only when the checkpoint is loaded.
TEST(Resume, ADamagedNewestIsFoundOnLoadAndSkipped) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 8), save(shared(root), 9);
    std::fstream file(step(shared(root), "9") / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from) << choice.refused;
  EXPECT_EQ(choice.from->path, step(shared_of_ranks(), "8"));
  EXPECT_EQ(choice.from->holders, kBoth);
  ASSERT_TRUE(choice.from->saved);
  EXPECT_TRUE(same_tensors(choice.from->saved->model, sample_state(8).model));
  EXPECT_EQ(choice.messages.find("has checksum") != std::string::npos, rank->environment.rank == 0) << choice.messages;
  EXPECT_TRUE(fs::exists(shared_of_ranks() / "step-000000009.bad"));
}

std::int64_t bytes_read() {
  std::ifstream in("/proc/self/io");
  std::string name;
  std::int64_t bytes = 0;
  in >> name >> bytes;  // the first line of the file is "rchar: N"
  return bytes;
}

TEST(Resume, ACheckpointRemovedMeanwhileIsNotSetAside) {
  const auto rank = as_node([](const fs::path& root) {
    for (const int number : {3, 4, 5}) save(shared(root), number);
    damage(step(shared(root), "4"));
    damage(step(shared(root), "5"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks(), {}, 0, "", [] { fs::remove_all(step(shared_of_ranks(), "4")); });
  EXPECT_EQ(choice.refused, "");
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 3);
  const bool is_rank_0 = rank->environment.rank == 0;
  EXPECT_EQ(choice.messages.find("step-000000005 is damaged") != std::string::npos, is_rank_0) << choice.messages;
  EXPECT_EQ(choice.messages.find("step-000000004"), std::string::npos) << choice.messages;
}

TEST(Resume, ReadsOnlyTheResumedCheckpointAndOnce) {
  constexpr std::int64_t kLarge = 4 << 20;
  const auto rank = as_node([](const fs::path& root) {
    for (const std::int64_t number : {6, 7, 8}) {
      CheckpointState state = sample_state(number);
      state.run = kSampleRun;
      state.model.push_back({"large", at::zeros({kLarge}, at::kByte)});
      save_checkpoint(shared(root), state, newest(9));
    }
  });
  if (!rank) return;
  const std::int64_t before = bytes_read();
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from) << choice.refused;
  EXPECT_TRUE(choice.from->saved);
  // The two ranks divide the read. The allowance is for manifests and for the files of the process.
  const std::vector<std::int64_t> own =
      Peers(rank->group, rank->environment.rank, kRanks, c10::kCPU).from_all(bytes_read() - before);
  EXPECT_GE(own[0] + own[1], kLarge);
  EXPECT_LT(own[0] + own[1], kLarge + kLarge / 2);
}

// ---- Changes of the training data ----

TEST(Resume, OtherDataIsRefusedWithoutDataChanged) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 9);
    write_run_identity(run_file(shared(root)), {.id = kSampleRun, .data = "ten"});
  });
  if (!rank) return;
  const Choice refused = choose(*rank, shared_of_ranks(), {}, 0, "eleven");
  EXPECT_FALSE(refused.from);
  EXPECT_NE(refused.refused.find("ten then, eleven now"), std::string::npos) << refused.refused;
  EXPECT_TRUE(choose(*rank, shared_of_ranks(), {}, 0, "ten").from);
  const Choice later = choose(*rank, shared_of_ranks(), {}, 1, "");  // a replacement (restart 1) does not compare the data
  EXPECT_TRUE(later.from);
  EXPECT_EQ(later.run.data, "ten");
  Options options;
  options.data_changed = rank->environment.rank == 1;
  const Choice choice_with_flag = choose(*rank, shared_of_ranks(), options, 0, "eleven");
  EXPECT_TRUE(choice_with_flag.from) << choice_with_flag.refused;
  EXPECT_EQ(choice_with_flag.run.data, "eleven");
}

TEST(Resume, DataMayChangeBeforeTheFirstStep) {
  const auto rank = as_node([](const fs::path& root) {
    fs::create_directories(shared(root));
    write_run_identity(run_file(shared(root)), {.id = kSampleRun, .data = "ten"});
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks(), {}, 0, "eleven");
  EXPECT_EQ(choice.refused, "");
  EXPECT_EQ(choice.run.data, "eleven");
}

// --fresh is passed to the agent of rank 0 only, but applies to all nodes.
TEST(Resume, FreshOfRank0AppliesToCopiesToo) {
  const auto rank = as_node([](const fs::path& root) {
    for (const int node : {0, 1}) save(copy(root, node), 9);
  });
  if (!rank) return;
  Options options;
  if (rank->environment.rank == 0) options.resume = Options::Resume::kNever;
  EXPECT_FALSE(choose(*rank, own_dir_of(*rank), options).from);
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), rank->environment.rank) / "step-000000009.superseded"));
  EXPECT_FALSE(choose(*rank, own_dir_of(*rank)).from);
}

// ---- The run to which a checkpoint belongs ----

void write_run_file(const fs::path& checkpoints, const std::string& run, std::vector<RunIdentity::Earlier> earlier = {}) {
  write_run_identity(run_file(checkpoints), {.id = run, .earlier = std::move(earlier)});
}

// The run was started again from scratch while node 1 was absent. Then node 1 returns with checkpoints of later steps.
TEST(Resume, CopiesOfAnAbandonedTrainingAreIgnored) {
  const auto rank = as_node([](const fs::path& root) {
    write_run_file(own(root, 0), kOther);
    save(own(root, 0), 7, false, kOther), save(copy(root, 1), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 7);
  EXPECT_EQ(choice.from->holders, std::vector<int>{0});
  EXPECT_EQ(choice.run.id, kOther);
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
}

TEST(Resume, AbandonedCopiesAreIgnoredBeforeTheFirstSave) {
  const auto rank = as_node([](const fs::path& root) {
    write_run_file(own(root, 0), kOther);
    save(copy(root, 1), 9), save(own(root, 1), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank));
  EXPECT_FALSE(choice.from);
  EXPECT_EQ(choice.run.id, kOther);
  EXPECT_EQ(choice.messages.find("training starts at step 0") != std::string::npos, rank->environment.rank == 0)
      << choice.messages;
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
  EXPECT_FALSE(choose(*rank, own_dir_of(*rank)).from);
}

// A run that is started again without --fresh is still the same run. So the checkpoints of a node that was absent are used
// when the node returns.
TEST(Resume, CheckpointsThatReturnAreResumed) {
  const auto rank = as_node([](const fs::path& root) {
    write_run_file(own(root, 0), kOther);
    save(root / "away", 9, false, kOther);
  });
  if (!rank) return;
  EXPECT_FALSE(choose(*rank, own_dir_of(*rank)).from);
  if (rank->environment.rank == 1) fs::rename(root_of_ranks() / "away", own_dir_of(*rank));
  expect_sent_by_rank_1(*rank, choose(*rank, own_dir_of(*rank)), step(own(root_of_ranks(), 1), "9"));
}

TEST(Resume, TheNewestCheckpointIdentifiesTheRun) {
  const auto rank = as_node(
      [](const fs::path& root) { save(own(root, 0), 7, false, kOther), save(copy(root, 0), 9), save(copy(root, 1), 9); });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 7);
  EXPECT_EQ(choice.run.id, kOther);
}

TEST(Resume, AnUnreadableRunFileIsReportedAndIgnored) {
  const auto rank = as_node([](const fs::path& root) {
    fs::create_directories(own(root, 0));
    std::ofstream(run_file(own(root, 0))) << "{\"run\"";
    save(own(root, 0), 7, false, kOther), save(copy(root, 1), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 7);
  EXPECT_EQ(choice.messages.find("run.json does not contain a valid run identity") != std::string::npos,
            rank->environment.rank == 0);
}

// Node 0 has a new, empty disk. The file on the other node identifies the run.
TEST(Resume, AnotherRanksRunFileIdentifiesTheRun) {
  const auto rank = as_node([](const fs::path& root) {
    write_run_file(own(root, 1), kOther);
    save(copy(root, 0), 9), save(copy(root, 1), 7, false, kOther);
  });
  if (!rank) return;
  expect_sent_by_rank_1(*rank, choose(*rank, own_dir_of(*rank)), step(copy(root_of_ranks(), 1), "7"));
}

TEST(Resume, TheNewestCopyIdentifiesAnUnknownRun) {
  const auto rank = as_node([](const fs::path& root) { save(copy(root, 1), 9), save(copy(root, 1), 8, false, kOther); });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank));
  expect_sent_by_rank_1(*rank, choice, step(copy(root_of_ranks(), 1), "9"));
  EXPECT_EQ(choice.run, (RunIdentity{.id = kSampleRun}));
}

TEST(Resume, ARunWithoutAnIdentityGetsOne) {
  const auto rank = as_node([](const fs::path& root) { save(shared(root), 8, false, ""), save(copy(root, 1), 9, false, ""); });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  expect_sent_by_rank_1(*rank, choice, step(copy(root_of_ranks(), 1), "9"));
  EXPECT_EQ(choice.run.earlier, (std::vector<RunIdentity::Earlier>{{.id = "", .until = 9}}));
  const Choice again = choose(*rank, shared_of_ranks());
  expect_sent_by_rank_1(*rank, again, step(copy(root_of_ranks(), 1), "9"));
  EXPECT_EQ(again.run, choice.run);
}

TEST(Resume, AnAnonymousCopyIsNotOfALaterRun) {
  const auto rank = as_node([](const fs::path& root) {
    write_run_file(own(root, 0), kOther);
    save(own(root, 0), 7, false, kOther), save(copy(root, 1), 9, false, "");
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 7);
}

// ---- Resuming from a given path (--resume PATH) ----

Options resume_path(const fs::path& path) {
  Options options;
  options.resume = Options::Resume::kPath;
  options.resume_from = path;
  return options;
}

// With --resume PATH a new run starts at that checkpoint, so later checkpoints do not belong to that run. In this test, the
// later checkpoint is in the run directory of node 1, and no other node removes it.
TEST(Resume, ANamedCheckpointIsSentAndStartsANewRun) {
  const auto rank = as_node([](const fs::path& root) { save(own(root, 1), 7), save(own(root, 1), 9); });
  if (!rank) return;
  const fs::path named = step(own(root_of_ranks(), 1), "7");
  // In the test all ranks share one disk. Rank 0 gets a path that does not exist, to simulate separate disks.
  const Options options = resume_path(rank->environment.rank == 0 ? root_of_ranks() / "nowhere" : named);
  const Choice choice = choose(*rank, own_dir_of(*rank), options);
  expect_sent_by_rank_1(*rank, choice, named);
  EXPECT_EQ(choice.run.earlier, (std::vector<RunIdentity::Earlier>{{.id = kSampleRun, .until = 7}}));
  const Choice restarted = choose(*rank, own_dir_of(*rank), options, 1);
  expect_sent_by_rank_1(*rank, restarted, named);
  EXPECT_EQ(restarted.run, choice.run);
  // The checkpoint of step 9 is ignored when the run starts the next time, because it belongs to the old run.
  expect_sent_by_rank_1(*rank, choose(*rank, own_dir_of(*rank)), named);
}

TEST(Resume, APathOnOneRankAppliesToAll) {
  const auto rank = as_node([](const fs::path& root) { save(root / "elsewhere", 7), save(shared(root), 9); });
  if (!rank) return;
  const fs::path named = step(root_of_ranks() / "elsewhere", "7");
  const Choice choice = choose(*rank, shared_of_ranks(), rank->environment.rank == 1 ? resume_path(named) : Options{});
  ASSERT_TRUE(choice.from) << choice.refused;
  EXPECT_EQ(choice.from->path, named);
  EXPECT_EQ(choice.from->holders, kBoth);
  EXPECT_TRUE(fs::exists(shared_of_ranks() / "step-000000009.superseded"));
}

TEST(Resume, NamedCheckpointsThatDifferAreRefused) {
  const auto rank = as_node([](const fs::path& root) { save(own(root, 0), 7), save(own(root, 1), 7, /*other=*/true); });
  if (!rank) return;
  const Choice choice = choose(*rank, own_dir_of(*rank), resume_path(step(own_dir_of(*rank), "7")));
  EXPECT_NE(choice.refused.find("the ranks found different checkpoints at this path"), std::string::npos) << choice.refused;
}

TEST(Resume, ANamedCheckpointThatNoRankHasIsRefused) {
  const auto rank = as_node([](const fs::path& root) { save(shared(root), 9); });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks(), resume_path(root_of_ranks() / "nowhere"));
  EXPECT_NE(choice.refused.find("nowhere does not exist"), std::string::npos) << choice.refused;
  EXPECT_TRUE(fs::exists(step(shared_of_ranks(), "9")));
}

}  // namespace
}  // namespace ddprun::trainer
