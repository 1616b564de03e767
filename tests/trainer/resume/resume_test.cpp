// Several ranks choose the checkpoint to resume from: run directories that are shared or not, copies on the nodes' own disks,
// damaged checkpoints in each place, and checkpoints of another training. Ranks are processes; each reads its own folders.
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
constexpr int kRanks = 2;  // each rank on its own node
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

// `other`: a training that continued in another way.
void save(const fs::path& checkpoints, std::int64_t step, bool other = false, const std::string& run = kSampleRun) {
  CheckpointState state = sample_state(step);
  state.run = run;
  if (other) state.model.front().tensor.add_(1);
  save_checkpoint(checkpoints, state, newest(9));
}

void damage(const fs::path& checkpoint) {
  std::ofstream(checkpoint / "model.safetensors", std::ios::app) << 'x';
}

// The result on this rank.
struct Choice {
  std::optional<ResumeFrom> from;
  RunIdentity run;
  std::string said;
  std::string refused;
};

// `checkpoints`: the folder in this rank's run directory.
Choice choose(
    Rank& rank, const fs::path& checkpoints, const Options& options = {}, int restart_count = 0, const std::string& data = "",
    const std::function<void()>& at_a_warning = [] {}) {
  const int number = rank.environment.rank;
  const Peers peers(rank.group, number, kRanks, c10::kCPU);
  const CheckpointPlaces places{.run_directory = checkpoints,
                                .local_copies = disk(std::getenv(kFolder), number),
                                .of_node = true,
                                .run_file = run_file(checkpoints)};
  Choice choice;
  try {
    const Beginning beginning = choose_resume(options, restart_count, places, data, peers, [&](const std::string& text) {
      choice.said += text + '\n';
      at_a_warning();
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
  peers.meet();  // renamed folders have their new names
  return choice;
}

// In the parent: `prepare` creates the files that the ranks find. In a rank: returns the rank.
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
fs::path own_of(const Rank& rank) {
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

TEST(Resume, TheCopiesAreTakenWhenTheRunDirectoryHasLostItsCheckpoints) {
  const auto rank = as_node([](const fs::path& root) {
    for (const int node : {0, 1}) save(copy(root, node), 8), save(copy(root, node), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(copy(root_of_ranks(), rank->environment.rank), "9"));
  EXPECT_EQ(choice.from->holders, kBoth);
  EXPECT_EQ(choice.run.id, kSampleRun);
  EXPECT_EQ(choice.said.find("has no valid checkpoint of step 9") != std::string::npos, rank->environment.rank == 0)
      << choice.said;
}

TEST(Resume, OneReadsItsCopyAndTheOtherTheRunDirectory) {
  const auto rank = as_node([](const fs::path& root) { save(shared(root), 9), save(copy(root, 0), 9); });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared_of_ranks(), "9"));
  EXPECT_EQ(choice.said, "");
}

TEST(Resume, ADamagedCopyIsSetAsideAndTheRunDirectorysTaken) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 9), save(copy(root, 0), 9), save(copy(root, 1), 9);
    damage(step(copy(root, 1), "9"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared_of_ranks(), "9"));
  EXPECT_EQ(choice.said.find("step-000000009.bad") != std::string::npos, rank->environment.rank == 1) << choice.said;
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.bad"));
  EXPECT_TRUE(fs::exists(step(copy(root_of_ranks(), 0), "9")));
}

// The run directory's newest checkpoint is damaged, and one node has no copy.
TEST(Resume, WhatOneNodeLacksIsSentToIt) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 8), save(shared(root), 9), save(copy(root, 1), 9);
    damage(step(shared(root), "9"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  expect_sent_by_rank_1(*rank, choice, step(copy(root_of_ranks(), 1), "9"));
  EXPECT_EQ(choice.said.find("that of rank 1, which sends it") != std::string::npos, rank->environment.rank == 0)
      << choice.said;
  EXPECT_TRUE(fs::exists(shared_of_ranks() / "step-000000009.bad"));
  EXPECT_EQ(fs::read_symlink(shared_of_ranks() / "latest"), "step-000000008");
}

TEST(Resume, WithoutASharedDiskTheNewestAnywhereIsTaken) {
  const auto rank = as_node([](const fs::path& root) { save(own(root, 0), 8), save(own(root, 1), 9); });
  if (!rank) return;
  expect_sent_by_rank_1(*rank, choose(*rank, own_of(*rank)), step(own(root_of_ranks(), 1), "9"));
}

// Node 1 was away while the others resumed from an earlier step: its copies belong to an abandoned history.
TEST(Resume, ACopyThatContainsSomethingElseIsNotMixedIn) {
  const auto rank = as_node(
      [](const fs::path& root) { save(shared(root), 9), save(copy(root, 0), 9), save(copy(root, 1), 9, /*other=*/true); });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared_of_ranks(), "9"));
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
  EXPECT_TRUE(same_tensors(load_checkpoint(*choice.from->path).model, sample_state(9).model));
}

TEST(Resume, OfCopiesThatNowhereAgreeThatOfTheLowestRankIsTaken) {
  const auto rank = as_node([](const fs::path& root) { save(copy(root, 0), 9), save(copy(root, 1), 9, /*other=*/true); });
  if (!rank) return;
  const Choice choice = choose(*rank, own_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->holders, std::vector<int>{0});
  EXPECT_EQ(choice.from->path.has_value(), rank->environment.rank == 0);
  EXPECT_TRUE(fs::exists(step(copy(root_of_ranks(), 0), "9")));
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
}

TEST(Resume, CheckpointsThatAreAllBadAreRefusedOnAllRanks) {
  const auto rank = as_node([](const fs::path& root) {
    save(copy(root, 1), 9);
    damage(step(copy(root, 1), "9"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_of(*rank));
  EXPECT_NE(choice.refused.find("can be used, and starting over would lose the run"), std::string::npos) << choice.refused;
  EXPECT_NE(choice.refused.find(rank->environment.rank == 0 ? "none here" : "step-000000009/model.safetensors has"),
            std::string::npos)
      << choice.refused;
  EXPECT_TRUE(fs::exists(step(copy(root_of_ranks(), 1), "9")));  // nothing was moved
}

// A bit flipped on the disk: the file keeps its length.
TEST(Resume, WhatIsWrongInTheNewestShowsWhileItIsLoadedAndTheOneBeforeIsTaken) {
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
  EXPECT_EQ(choice.said.find("has checksum") != std::string::npos, rank->environment.rank == 0) << choice.said;
  EXPECT_TRUE(fs::exists(shared_of_ranks() / "step-000000009.bad"));
}

std::int64_t bytes_read() {
  std::ifstream in("/proc/self/io");
  std::string name;
  std::int64_t bytes = 0;
  in >> name >> bytes;  // rchar
  return bytes;
}

TEST(Resume, WhatAnOlderStartRemovesMeanwhileIsNotSetAside) {
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
  const bool looks_after_it = rank->environment.rank == 0;
  EXPECT_EQ(choice.said.find("step-000000005 is bad") != std::string::npos, looks_after_it) << choice.said;
  EXPECT_EQ(choice.said.find("step-000000004"), std::string::npos) << choice.said;
}

TEST(Resume, ReadsOnceWhatItGoesOnFromAndNothingElse) {
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
  EXPECT_GE(bytes_read() - before, kLarge);
  EXPECT_LT(bytes_read() - before, kLarge + kLarge / 2);
}

// ---- the training data ----

TEST(Resume, OtherDataThanTheRunBeganWithIsRefusedUntilSomebodySaysThatItHasChanged) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 9);
    keep_run_identity(run_file(shared(root)), {.id = kSampleRun, .data = "ten"});
  });
  if (!rank) return;
  const Choice refused = choose(*rank, shared_of_ranks(), {}, 0, "eleven");
  EXPECT_FALSE(refused.from);
  EXPECT_NE(refused.refused.find("ten then, eleven now"), std::string::npos) << refused.refused;
  EXPECT_TRUE(choose(*rank, shared_of_ranks(), {}, 0, "ten").from);
  const Choice later = choose(*rank, shared_of_ranks(), {}, 1, "");  // a replacement does not check the data
  EXPECT_TRUE(later.from);
  EXPECT_EQ(later.run.data, "ten");
  Options options;
  options.data_changed = rank->environment.rank == 1;
  const Choice told = choose(*rank, shared_of_ranks(), options, 0, "eleven");
  EXPECT_TRUE(told.from) << told.refused;
  EXPECT_EQ(told.run.data, "eleven");
}

TEST(Resume, DataThatNothingWasLearnedFromMayBeAnother) {
  const auto rank = as_node([](const fs::path& root) {
    fs::create_directories(shared(root));
    keep_run_identity(run_file(shared(root)), {.id = kSampleRun, .data = "ten"});
  });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks(), {}, 0, "eleven");
  EXPECT_EQ(choice.refused, "");
  EXPECT_EQ(choice.run.data, "eleven");
}

// Only one agent gets --fresh.
TEST(Resume, NeverIsRank0sWordAndHoldsForTheCopiesToo) {
  const auto rank = as_node([](const fs::path& root) {
    for (const int node : {0, 1}) save(copy(root, node), 9);
  });
  if (!rank) return;
  Options options;
  if (rank->environment.rank == 0) options.resume = Options::Resume::kNever;
  EXPECT_FALSE(choose(*rank, own_of(*rank), options).from);
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), rank->environment.rank) / "step-000000009.superseded"));
  EXPECT_FALSE(choose(*rank, own_of(*rank)).from);
}

// ---- the run that a checkpoint belongs to ----

void say_whose(const fs::path& checkpoints, const std::string& run, std::vector<RunIdentity::Earlier> earlier = {}) {
  keep_run_identity(run_file(checkpoints), {.id = run, .earlier = std::move(earlier)});
}

// The training was started over while node 1 was away; then node 1 returns with more steps.
TEST(Resume, CopiesOfATrainingThatWasStartedOverSinceAreNotTaken) {
  const auto rank = as_node([](const fs::path& root) {
    say_whose(own(root, 0), kOther);
    save(own(root, 0), 7, false, kOther), save(copy(root, 1), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 7);
  EXPECT_EQ(choice.from->holders, std::vector<int>{0});
  EXPECT_EQ(choice.run.id, kOther);
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
}

TEST(Resume, NorAreTheyBeforeItsFirstSave) {
  const auto rank = as_node([](const fs::path& root) {
    say_whose(own(root, 0), kOther);
    save(copy(root, 1), 9), save(own(root, 1), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_of(*rank));
  EXPECT_FALSE(choice.from);
  EXPECT_EQ(choice.run.id, kOther);
  EXPECT_EQ(choice.said.find("training begins at step 0") != std::string::npos, rank->environment.rank == 0) << choice.said;
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
  EXPECT_FALSE(choose(*rank, own_of(*rank)).from);
}

// Without --fresh it stays the same run, so the state of an absent node is not lost.
TEST(Resume, ARunThatBeginsAgainWithoutItsCheckpointsGoesOnFromThemWhenTheyAreBack) {
  const auto rank = as_node([](const fs::path& root) {
    say_whose(own(root, 0), kOther);
    save(root / "away", 9, false, kOther);
  });
  if (!rank) return;
  EXPECT_FALSE(choose(*rank, own_of(*rank)).from);
  if (rank->environment.rank == 1) fs::rename(root_of_ranks() / "away", own_of(*rank));
  expect_sent_by_rank_1(*rank, choose(*rank, own_of(*rank)), step(own(root_of_ranks(), 1), "9"));
}

TEST(Resume, WithoutTheFileTheRunDirectorysNewestTellsWhoseItIs) {
  const auto rank = as_node(
      [](const fs::path& root) { save(own(root, 0), 7, false, kOther), save(copy(root, 0), 9), save(copy(root, 1), 9); });
  if (!rank) return;
  const Choice choice = choose(*rank, own_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 7);
  EXPECT_EQ(choice.run.id, kOther);
}

TEST(Resume, AnUnreadableFileIsSaidAndNotGoneBy) {
  const auto rank = as_node([](const fs::path& root) {
    fs::create_directories(own(root, 0));
    std::ofstream(run_file(own(root, 0))) << "{\"run\"";
    save(own(root, 0), 7, false, kOther), save(copy(root, 1), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 7);
  EXPECT_EQ(choice.said.find("run.json does not say which run it is of") != std::string::npos, rank->environment.rank == 0);
}

// Node 0 has a new disk; the other node knows the run.
TEST(Resume, WhereRank0KnowsNothingAnotherRanksFileTells) {
  const auto rank = as_node([](const fs::path& root) {
    say_whose(own(root, 1), kOther);
    save(copy(root, 0), 9), save(copy(root, 1), 7, false, kOther);
  });
  if (!rank) return;
  expect_sent_by_rank_1(*rank, choose(*rank, own_of(*rank)), step(copy(root_of_ranks(), 1), "7"));
}

TEST(Resume, WhereNobodyKnowsTheNewestCopyDecides) {
  const auto rank = as_node([](const fs::path& root) { save(copy(root, 1), 9), save(copy(root, 1), 8, false, kOther); });
  if (!rank) return;
  const Choice choice = choose(*rank, own_of(*rank));
  expect_sent_by_rank_1(*rank, choice, step(copy(root_of_ranks(), 1), "9"));
  EXPECT_EQ(choice.run, (RunIdentity{.id = kSampleRun}));
}

TEST(Resume, ARunOfAVersionWithoutIdentitiesGetsOneAndGoesOn) {
  const auto rank = as_node([](const fs::path& root) { save(shared(root), 8, false, ""), save(copy(root, 1), 9, false, ""); });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks());
  expect_sent_by_rank_1(*rank, choice, step(copy(root_of_ranks(), 1), "9"));
  EXPECT_EQ(choice.run.earlier, (std::vector<RunIdentity::Earlier>{{.id = "", .until = 9}}));
  const Choice again = choose(*rank, shared_of_ranks());
  expect_sent_by_rank_1(*rank, again, step(copy(root_of_ranks(), 1), "9"));
  EXPECT_EQ(again.run, choice.run);
}

TEST(Resume, ACopyOfSuchAVersionIsNotOfARunThatBeganLater) {
  const auto rank = as_node([](const fs::path& root) {
    say_whose(own(root, 0), kOther);
    save(own(root, 0), 7, false, kOther), save(copy(root, 1), 9, false, "");
  });
  if (!rank) return;
  const Choice choice = choose(*rank, own_of(*rank));
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->step, 7);
}

// ---- --resume PATH ----

Options resume_path(const fs::path& path) {
  Options options;
  options.resume = Options::Resume::kPath;
  options.resume_from = path;
  return options;
}

// From then on, later checkpoints belong to the former training. Here they are those of node 1's own run directory, which no
// other node clears.
TEST(Resume, ANamedCheckpointIsSentToWhoLacksItAndBeginsATrainingOfItsOwn) {
  const auto rank = as_node([](const fs::path& root) { save(own(root, 1), 7), save(own(root, 1), 9); });
  if (!rank) return;
  const fs::path named = step(own(root_of_ranks(), 1), "7");
  // All ranks share one disk in the test: rank 0 gets a path that does not exist.
  const Options options = resume_path(rank->environment.rank == 0 ? root_of_ranks() / "nowhere" : named);
  const Choice choice = choose(*rank, own_of(*rank), options);
  expect_sent_by_rank_1(*rank, choice, named);
  EXPECT_EQ(choice.run.earlier, (std::vector<RunIdentity::Earlier>{{.id = kSampleRun, .until = 7}}));
  const Choice restarted = choose(*rank, own_of(*rank), options, 1);
  expect_sent_by_rank_1(*rank, restarted, named);
  EXPECT_EQ(restarted.run, choice.run);
  expect_sent_by_rank_1(*rank, choose(*rank, own_of(*rank)), named);  // the next start: step 9 does not belong to this run
}

TEST(Resume, APathThatOneRankAloneWasGivenCountsForAll) {
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
  const Choice choice = choose(*rank, own_of(*rank), resume_path(step(own_of(*rank), "7")));
  EXPECT_NE(choice.refused.find("is not the same checkpoint for all ranks"), std::string::npos) << choice.refused;
}

TEST(Resume, ANamedCheckpointThatNoRankHasIsRefused) {
  const auto rank = as_node([](const fs::path& root) { save(shared(root), 9); });
  if (!rank) return;
  const Choice choice = choose(*rank, shared_of_ranks(), resume_path(root_of_ranks() / "nowhere"));
  EXPECT_NE(choice.refused.find("nowhere is not there"), std::string::npos) << choice.refused;
  EXPECT_TRUE(fs::exists(step(shared_of_ranks(), "9")));
}

}  // namespace
}  // namespace ddprun::trainer
