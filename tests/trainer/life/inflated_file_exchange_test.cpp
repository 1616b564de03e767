// Tests how the workers of a machine share an inflated file: one worker inflates it, and the other workers map its memory. The
// workers of a later round (a new start of all workers) must find that memory too. The store is then empty, and the node may
// have a different rank.
#include "trainer/life/inflated_file_exchange.hpp"

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

// One round (a start of all workers): an agent with its store, and the channels of two workers.
struct Round {
  FakeAgent agent;
  AgentChannel first{agent.connect(), {}, nullptr};
  AgentChannel second{agent.connect(), {}, nullptr};
};

TEST(InflatedFileExchange, OneWorkerInflatesForItsMachine) {
  Round round;
  InflatedFileExchange first, second;
  first.files(worker(0, 1), &round.first).offer("images", "/shared-1");
  EXPECT_EQ(second.files(worker(1, 1), &round.second).find("images"), "/shared-1");
}

TEST(InflatedFileExchange, IsOfferedAgainToNewWorkers) {
  InflatedFileExchange first;
  const WorkerEnvironment before = worker(0, 1);
  Round round, next;
  const InflatedFiles files = first.files(before, &round.first);
  files.offer("images", "/shared-1");
  files.offer("more images", "/shared-2");
  const WorkerEnvironment now = worker(0, 0);  // the other node was lost, so the ranks of this node change
  first.offer_again(now, next.first);
  InflatedFileExchange successor;
  const InflatedFiles found = successor.files(worker(1, 0), &next.second);
  EXPECT_EQ(found.find("images"), "/shared-1");
  EXPECT_EQ(found.find("more images"), "/shared-2");
}

TEST(InflatedFileExchange, AWorkerThatInflatedNothingOffersNothing) {
  Round round;
  InflatedFileExchange alone;
  const InflatedFiles none = alone.files(worker(0, 0), nullptr);
  EXPECT_FALSE(none.offer);
  EXPECT_FALSE(none.find);
  round.agent.disconnect();  // the worker must not send anything over its channel, so the closed channel must cause no error
  EXPECT_NO_THROW(alone.offer_again(worker(0, 0), round.first));
}

}  // namespace
}  // namespace ddprun::trainer
