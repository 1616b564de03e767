// Stories of a few nodes that a seed of the simulator hardly finds: a coordinator that is lost just when it has released a round,
// and one that steps down, lives on, and dies later.
#include "tests/rendezvous/node/few_nodes.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using Loss = void (FewNodes::*)(int);
constexpr Loss kLosses[] = {&FewNodes::kill, &FewNodes::lose_power};

// A job of three has ended a round, and its coordinator is gone at one of the milliseconds after it has released the next one:
// before anybody has heard of that, before it is committed, or after. The others go on.
void lose_the_coordinator_after(Loss lose, int milliseconds_after) {
  FewNodes job(3, /*min_nodes=*/2, /*max_nodes=*/3);
  for (const int number : {0, 1, 2}) job.start(number);
  ASSERT_TRUE(job.until([&] { return job.works(0, 3) && job.works(1, 3) && job.works(2, 3); }, "the first round"));
  job.pass(seconds(3));
  job.worker_fails(1);
  ASSERT_TRUE(job.until([&] { return job[0].node->coordinator()->round().round == 1; }, "the second round's release"));
  job.pass(milliseconds(milliseconds_after));
  (job.*lose)(0);
  EXPECT_TRUE(job.until([&] { return job.works(1, 2) && job.works(2, 2); }, "the others at work")) << milliseconds_after;
}

TEST(ACoordinatorLostJustAfterARelease, IsFollowedByTheOthers) {
  for (int after = 0; after <= 20; ++after) {
    for (const Loss lose : kLosses) lose_the_coordinator_after(lose, after);
  }
}

// A job of two has let a third node in. Of the round before the others are no majority, so it counts that they know within 20 ms
// that the new one is committed.
TEST(ACoordinatorLostJustAfterARelease, IsFollowedInARoundThatHasGrownTwentyMillisecondsAgo) {
  for (const Loss lose : kLosses) {
    FewNodes job(3, /*min_nodes=*/2, /*max_nodes=*/3);
    job.start(0);
    job.start(1);
    ASSERT_TRUE(job.until([&] { return job.works(0, 2) && job.works(1, 2); }, "a round of two"));
    ASSERT_EQ(job.rank_of(0), 0);
    job.pass(seconds(3));
    job.start(2);
    ASSERT_TRUE(job.until([&] { return job[0].node->coordinator()->round().round == 1; }, "the second round's release"));
    job.pass(milliseconds(20));
    (job.*lose)(0);
    EXPECT_TRUE(job.until([&] { return job.works(1, 2) && job.works(2, 2); }, "the others at work"));
  }
}

// Node 0 has founded the job and is cut off. Node 1 leads the round of nodes 1 and 2; its guardian would say to node 2 that it is
// dead. Its workers cannot be killed, so it steps down for another one to lead. Now node 0 is back, and node 2 is cut off: node 0
// leads with node 1's vote, and trains. Then node 1's agent is killed, its workers end after all, and node 2 is back. It is still
// in the round that node 1 led; a farewell would give it the vote that node 0 has. True: both train.
bool two_jobs_train(const Rules& rules) {
  FewNodes job(3, /*min_nodes=*/1, /*max_nodes=*/3, rules);
  for (const int number : {0, 1, 2}) job.start(number);
  EXPECT_TRUE(job.until([&] { return job.works(0, 3) && job.works(1, 3) && job.works(2, 3); }, "the first round"));
  job.pass(seconds(3));
  job.cut_off(0);
  EXPECT_TRUE(job.until([&] { return job.works(1, 2) && job.works(2, 2); }, "a round of nodes 1 and 2"));
  EXPECT_TRUE(job.leads(1));
  EXPECT_EQ(job.rank_of(1), 0);
  job.pass(seconds(3));
  job[1].stuck = true;
  job.worker_fails(2);
  EXPECT_TRUE(job.until([&] { return !job.leads(1); }, "node 1 stepping down"));
  job.cut_off(2);
  job.heal(0);
  EXPECT_TRUE(job.until([&] { return job.works(0, 1); }, "node 0 at work"));
  job.kill(1);
  job.reaped(1);
  job.heal(2);
  job.pass(seconds(3));
  return job.works(0, 1) && job.works(2, 1);
}

TEST(ACoordinatorThatStepsDown, TakesItsFarewellBack) {
  EXPECT_FALSE(two_jobs_train(Rules{}));
  Rules says_farewell;
  says_farewell.who_steps_down_revokes = false;
  EXPECT_TRUE(two_jobs_train(says_farewell)) << "the rule is not needed in this story";
}

}  // namespace
}  // namespace ddprun::rendezvous
