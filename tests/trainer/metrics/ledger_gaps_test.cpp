// Tests how gaps in the ledger are filled. A lost rank may not have written all its lines, and another rank may be lost before
// all missing lines are added. In the end the ledger must have each sample of each step exactly once.
#include "trainer/metrics/ledger_gaps.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/common/temporary_folder.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/metrics/ledger.hpp"

namespace ddprun::trainer {
namespace {

using Gaps = std::vector<LedgerGap>;
using Samples = std::vector<std::int64_t>;

constexpr std::uint64_t kSeed = 3;

// Returns the length of the run. An epoch has three steps, and the last step has only two samples.
RunLength length() {
  return {.samples_per_epoch = 10, .batch_size = 4, .epochs = 3, .steps_per_epoch = 3, .total_steps = 9};
}

class LedgerGapsTest : public testing::Test {
 protected:
  // Writes the lines of rank `rank` of `world` ranks for the steps after `first` up to `last`, as in training.
  void trains(int rank, int world, std::int64_t first, std::int64_t last) {
    Ledger ledger(folder_.path(), rank, on_trouble_);
    for (std::int64_t done = first; done < last; ++done) {
      const std::int64_t position = length().position_of(done);
      const Samples order = epoch_order(10, kSeed, length().epoch_of(done));
      ledger.write(done + 1, length().epoch_of(done), position,
                   share_of_batch(order, position, std::min<std::int64_t>(4, 10 - position), world, rank));
    }
  }
  Gaps gaps(const PreviousGroup& before, int rank, int world) { return ledger_gaps(folder_.path(), before, rank, world); }
  void fill(const PreviousGroup& before, int rank, int world, std::int64_t step) {
    fill_ledger_gaps(folder_.path(), gaps(before, rank, world), before, step, length(), kSeed, on_trouble_);
  }
  void expect_each_sample_once(std::int64_t steps) {
    std::map<std::int64_t, Samples> used;
    for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
      std::istringstream lines(test::read_text(file.path()));
      for (std::string line; std::getline(lines, line);) {
        const auto entry = nlohmann::json::parse(line);
        Samples& of_step = used[entry.at("step").get<std::int64_t>()];
        for (const auto& sample : entry.at("samples")) of_step.push_back(sample.get<std::int64_t>());
      }
    }
    EXPECT_EQ(std::ssize(used), steps);
    for (auto& [step, samples] : used) {
      const std::int64_t position = length().position_of(step - 1);
      const Samples order = epoch_order(10, kSeed, length().epoch_of(step - 1));
      Samples batch(order.begin() + position, order.begin() + std::min<std::int64_t>(position + 4, 10));
      std::sort(batch.begin(), batch.end());
      std::sort(samples.begin(), samples.end());
      EXPECT_EQ(samples, batch) << "step " << step;
    }
    EXPECT_EQ(trouble_, "");
  }

  test::TemporaryFolder folder_;
  std::string trouble_;
  std::function<void(const std::string&)> on_trouble_ = [this](const std::string& text) { trouble_ = text; };
};

TEST_F(LedgerGapsTest, AMissingLineOfALostRankIsAdded) {
  trains(0, 2, 0, 5);
  trains(1, 2, 0, 4);
  const PreviousGroup before{.world = 2};
  EXPECT_EQ(gaps(before, 0, 2), (Gaps{{0, 5}}));
  EXPECT_EQ(gaps(before, 1, 2), (Gaps{{1, 4}}));
  fill(before, 0, 2, 5);
  fill(before, 1, 2, 5);
  expect_each_sample_once(5);
}

TEST_F(LedgerGapsTest, AllLinesOfASilentRankAreAdded) {
  trains(0, 2, 0, 1);
  trains(1, 2, 0, 0);
  fill({.world = 2}, 1, 2, 1);
  expect_each_sample_once(1);
}

TEST_F(LedgerGapsTest, EachRemovedRankIsAssignedToOneRank) {
  for (int rank = 0; rank < 5; ++rank) trains(rank, 5, 0, rank < 3 ? 4 : 3);
  const PreviousGroup before{.world = 5};
  EXPECT_EQ(gaps(before, 0, 2), (Gaps{{0, 4}, {2, 4}, {4, 3}}));
  EXPECT_EQ(gaps(before, 1, 2), (Gaps{{1, 4}, {3, 3}}));
  for (const int rank : {0, 1}) fill(before, rank, 2, 4);
  expect_each_sample_once(4);
}

TEST_F(LedgerGapsTest, ASecondLossAddsNoLineTwice) {
  for (int rank = 0; rank < 4; ++rank) trains(rank, 4, 0, rank < 2 ? 4 : 3);
  const PreviousGroup before{.world = 4};
  fill(before, 0, 2, 4);  // rank 0 fills its gaps; rank 1 is lost before it can fill its own gaps
  for (const int rank : {0, 1}) fill(before, rank, 2, 4);
  expect_each_sample_once(4);
  fill(before, 0, 1, 4);
  expect_each_sample_once(4);
}

TEST_F(LedgerGapsTest, LinesOfAnotherGroupAreIgnored) {
  for (int rank = 0; rank < 4; ++rank) trains(rank, 4, 0, 2);
  for (int rank = 0; rank < 2; ++rank) trains(rank, 2, 2, 4);
  // The process group has four ranks again. Rank 3 is lost before it writes a line in this group, so its newest line is for
  // step 2.
  const PreviousGroup again{.world = 4, .since = 4};
  for (int rank = 0; rank < 3; ++rank) trains(rank, 4, 4, 5);
  EXPECT_EQ(gaps(again, 3, 4), (Gaps{{3, 4}}));
  for (int rank = 0; rank < 4; ++rank) fill(again, rank, 4, 5);
  expect_each_sample_once(5);
}

TEST_F(LedgerGapsTest, StepsOfAnEarlierInvocationAreIgnored) {
  trains(0, 2, 0, 0);
  EXPECT_EQ(gaps({.world = 2, .started_from = 3}, 0, 2), (Gaps{{0, 3}}));
}

// The files of the other ranks are on the disks of their nodes, so this rank fills only the gap in its own file.
TEST_F(LedgerGapsTest, AMissingFileBelongsToAnotherNode) {
  EXPECT_EQ(gaps({.world = 4, .since = 2}, 1, 2), (Gaps{{1, 2}}));
}

}  // namespace
}  // namespace ddprun::trainer
