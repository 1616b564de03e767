// One worker of a machine inflates a file, and the others use its memory. A worker that is new in a later round uses it too,
// although the round's store begins empty and the node may have another number.
#include "trainer/life/inflated_sharing.hpp"

#include <gtest/gtest.h>

#include "tests/trainer/surroundings/fake_agent.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {
namespace {

WorkerEnvironment worker(int local_rank, int group_rank) {
  WorkerEnvironment environment;
  environment.local_world_size = 2;
  environment.world_size = 4;
  environment.local_rank = local_rank;
  environment.group_rank = group_rank;
  environment.rank = 2 * group_rank + local_rank;
  return environment;
}

// The agent's store of one round.
struct Round {
  FakeAgent agent;
  AgentChannel first{agent.connect(), {}, nullptr};
  AgentChannel second{agent.connect(), {}, nullptr};
};

TEST(InflatedSharing, OneInflatesForTheOthersOfItsMachine) {
  Round round;
  InflatedSharing first, second;
  first.files(worker(0, 1), &round.first).offer("images", "/shared-1");
  EXPECT_EQ(second.files(worker(1, 1), &round.second).find("images"), "/shared-1");
}

TEST(InflatedSharing, IsOfferedAgainToThoseWhoAreNew) {
  InflatedSharing first;
  const WorkerEnvironment before = worker(0, 1);
  Round round, next;
  const InflatedFiles files = first.files(before, &round.first);
  files.offer("images", "/shared-1");
  files.offer("more images", "/shared-2");
  const WorkerEnvironment now = worker(0, 0);  // the other node was lost
  first.offer_again(now, next.first);
  InflatedSharing successor;
  const InflatedFiles found = successor.files(worker(1, 0), &next.second);
  EXPECT_EQ(found.find("images"), "/shared-1");
  EXPECT_EQ(found.find("more images"), "/shared-2");
}

TEST(InflatedSharing, WhoInflatedNothingOffersNothing) {
  Round round;
  InflatedSharing alone;
  const InflatedFiles none = alone.files(worker(0, 0), nullptr);
  EXPECT_FALSE(none.offer);
  EXPECT_FALSE(none.find);
  round.agent.hang_up();  // the closed channel must not be used
  EXPECT_NO_THROW(alone.offer_again(worker(0, 0), round.first));
}

}  // namespace
}  // namespace ddprun::trainer
