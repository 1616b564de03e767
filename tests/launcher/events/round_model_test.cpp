// Tests RoundModel, which tracks the workers of a round over restarts and regroups.
#include "launcher/events/round_model.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <vector>

namespace ddprun {
namespace {

class RoundModelTest : public testing::Test {
 protected:
  void begin(int group_rank, bool regroup) {
    model_.on(RoundStarted{.round = 0,
                           .restart_count = 0,
                           .world_size = 4,
                           .time_ns = 0,
                           .workers_here = 2,
                           .group_rank = group_rank,
                           .nodes = 2,
                           .regroup = regroup});
  }
  void start(int rank, std::int64_t pid) { model_.on(WorkerStarted{rank, rank % 2, pid, 0}); }
  std::vector<int> ranks() const {
    std::vector<int> found;
    for (const auto& [rank, worker] : model_.workers()) found.push_back(rank);
    return found;
  }

  RoundModel model_;
};

TEST_F(RoundModelTest, ARestartBeginsWithoutWorkers) {
  begin(1, false);
  start(2, 70);
  begin(1, false);
  EXPECT_TRUE(ranks().empty());
}

TEST_F(RoundModelTest, RanksOfSurvivorsMoveWithTheirNode) {
  begin(1, false);
  start(2, 70);
  start(3, 71);
  model_.on(WorkerReported{3, channel::PhaseChange{.phase = channel::Phase::kRunning, .step = 5}, 9});
  begin(0, true);
  EXPECT_EQ(ranks(), (std::vector<int>{0, 1}));
  ASSERT_NE(model_.find(1), nullptr);
  EXPECT_EQ(model_.find(1)->pid, 71);
  EXPECT_EQ(model_.find(1)->step, 5);
  EXPECT_EQ(model_.find(3), nullptr);
}

TEST_F(RoundModelTest, TheEndOfAnEarlierProcessIsIgnored) {
  begin(0, false);
  start(0, 70);
  start(0, 80);
  model_.on(WorkerEnded{0, 70, {0, SIGKILL, false}, false, 0});
  EXPECT_FALSE(model_.find(0)->ended);
  model_.on(WorkerEnded{0, 80, {0, SIGKILL, false}, false, 0});
  EXPECT_TRUE(model_.find(0)->ended);
}

}  // namespace
}  // namespace ddprun
