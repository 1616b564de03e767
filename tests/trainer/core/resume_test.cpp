// Several ranks choose the checkpoint to go on from: what the run directory has, what nodes have on their own disks, what is
// bad and where, and what is of another training. Ranks are processes; each reads its own places.
#include "trainer/resume.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/sample_state.hpp"
#include "tests/trainer/parallel/ranks.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

constexpr const char* kFolder = "DDPRUN_TEST_FOLDER";
constexpr int kRanks = 2;  // each of a node of its own

fs::path shared(const fs::path& root) {
  return root / "run" / "checkpoints";
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

// `other`: a training that went on otherwise.
void save(const fs::path& checkpoints, std::int64_t step, bool other = false) {
  CheckpointState state = sample_state(step);
  if (other) state.model.front().tensor.add_(1);
  save_checkpoint(checkpoints, state, newest(9));
}

void damage(const fs::path& checkpoint) {
  std::ofstream(checkpoint / "model.safetensors", std::ios::app) << 'x';
}

// What came of it on this rank.
struct Choice {
  std::optional<ResumeFrom> from;
  std::string said;
  std::string refused;
};

Choice choose(Rank& rank, const fs::path& root, const Options& options = {}) {
  const int own = rank.environment.rank;
  const Peers peers(rank.group, own, kRanks, c10::kCPU);
  const CheckpointPlaces places{.run_directory = shared(root), .local_copies = disk(root, own), .mends_local = true};
  Choice choice;
  try {
    choice.from = choose_resume(options, 0, places, peers, [&](const std::string& text) { choice.said += text + '\n'; });
  } catch (const BadCheckpointError& error) {
    choice.refused = error.what();
  }
  peers.meet();  // what is renamed is renamed
  return choice;
}

// In the parent: `prepare` makes what the ranks find. In a rank: the rank.
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

TEST(Resume, TheCopiesAreTakenWhenTheRunDirectoryHasLostItsCheckpoints) {
  const auto rank = as_node([](const fs::path& root) {
    for (const int node : {0, 1}) save(copy(root, node), 8), save(copy(root, node), 9);
  });
  if (!rank) return;
  const Choice choice = choose(*rank, root_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(copy(root_of_ranks(), rank->environment.rank), "9"));
  EXPECT_EQ(choice.said.find("has no valid checkpoint of step 9") != std::string::npos, rank->environment.rank == 0)
      << choice.said;
}

TEST(Resume, OneReadsItsCopyAndTheOtherTheRunDirectory) {
  const auto rank = as_node([](const fs::path& root) { save(shared(root), 9), save(copy(root, 0), 9); });
  if (!rank) return;
  const Choice choice = choose(*rank, root_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared(root_of_ranks()), "9"));
  EXPECT_EQ(choice.said, "");
}

TEST(Resume, ADamagedCopyIsSetAsideAndTheRunDirectorysTaken) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 9), save(copy(root, 0), 9), save(copy(root, 1), 9);
    damage(step(copy(root, 1), "9"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, root_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared(root_of_ranks()), "9"));
  EXPECT_EQ(choice.said.find("step-000000009.bad") != std::string::npos, rank->environment.rank == 1) << choice.said;
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.bad"));
  EXPECT_TRUE(fs::exists(step(copy(root_of_ranks(), 0), "9")));
}

// The run directory's newest is bad and one node has none of its own: the newest that all have is an older one.
TEST(Resume, WhatOneNodeLacksIsNotTaken) {
  const auto rank = as_node([](const fs::path& root) {
    save(shared(root), 8), save(shared(root), 9), save(copy(root, 1), 9);
    damage(step(shared(root), "9"));
  });
  if (!rank) return;
  const Choice choice = choose(*rank, root_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(shared(root_of_ranks()), "8"));
  EXPECT_TRUE(fs::exists(shared(root_of_ranks()) / "step-000000009.bad"));
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
  EXPECT_EQ(fs::read_symlink(shared(root_of_ranks()) / "latest"), "step-000000008");
}

// Node 1 was away while the others went on from an earlier step: its copies are of a training that is no more.
TEST(Resume, ACopyOfAnotherTrainingIsNotMixedIn) {
  const auto rank = as_node(
      [](const fs::path& root) { save(shared(root), 9), save(copy(root, 0), 9), save(copy(root, 1), 9, /*other=*/true); });
  if (!rank) return;
  const Choice choice = choose(*rank, root_of_ranks());
  ASSERT_TRUE(choice.from);
  EXPECT_EQ(choice.from->path, step(rank->environment.rank == 0 ? copy(root_of_ranks(), 0) : shared(root_of_ranks()), "9"));
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), 1) / "step-000000009.superseded"));
  EXPECT_TRUE(same_tensors(load_checkpoint(choice.from->path).model, sample_state(9).model));
}

TEST(Resume, CopiesThatNowhereAgreeAreRefused) {
  const auto rank = as_node([](const fs::path& root) { save(copy(root, 0), 9), save(copy(root, 1), 9, /*other=*/true); });
  if (!rank) return;
  const Choice choice = choose(*rank, root_of_ranks());
  EXPECT_NE(choice.refused.find("valid here, but not for all ranks"), std::string::npos) << choice.refused;
  EXPECT_TRUE(fs::exists(step(copy(root_of_ranks(), rank->environment.rank), "9")));  // nothing was moved
}

// --fresh is said to one agent only.
TEST(Resume, NeverIsRank0sWordAndHoldsForTheCopiesToo) {
  const auto rank = as_node([](const fs::path& root) {
    for (const int node : {0, 1}) save(copy(root, node), 9);
  });
  if (!rank) return;
  Options options;
  if (rank->environment.rank == 0) options.resume = Options::Resume::kNever;
  EXPECT_FALSE(choose(*rank, root_of_ranks(), options).from);
  EXPECT_TRUE(fs::exists(copy(root_of_ranks(), rank->environment.rank) / "step-000000009.superseded"));
  EXPECT_FALSE(choose(*rank, root_of_ranks()).from);
}

}  // namespace
}  // namespace ddprun::trainer
