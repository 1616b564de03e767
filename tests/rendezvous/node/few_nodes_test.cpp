// Tests a few nodes in cases that the simulator rarely reaches. In some cases, the coordinator is lost just after it has
// released (started) a round. In other cases, a coordinator steps down, continues to run, and dies later.
#include "tests/rendezvous/node/few_nodes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

namespace ddprun::rendezvous {
namespace {

using Loss = void (FewNodes::*)(int);
constexpr Loss kLosses[] = {&FewNodes::kill, &FewNodes::lose_power};

// A round of three nodes ends. The coordinator is lost a few milliseconds after it has released the next round. Depending on
// the delay, there are three cases: no node has received the release, the new round is not committed, or it is committed. In
// all three cases, the other nodes must continue.
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

TEST(CoordinatorLostAfterARelease, OthersElectASuccessor) {
  for (int after = 0; after <= 20; ++after) {
    for (const Loss lose : kLosses) lose_the_coordinator_after(lose, after);
  }
}

// A job of two nodes has admitted a third node. Then its coordinator is lost. The remaining two nodes are not a majority of the
// previous round, so they must have been informed within 20 ms that the new round is committed.
TEST(CoordinatorLostAfterARelease, OthersElectASuccessorInAGrownRound) {
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

// Builds a case in which the vote of one node could count twice because of a death notice. The steps are:
//   1. Node 0 has started a job of four nodes and is cut off. The next coordinator is lost.
//   2. Node 3 leads a round with node 2. If node 3 died, its guardian would send a death notice to node 2.
//   3. The workers of node 3 cannot be killed, so node 3 steps down in favor of another node.
//   4. Node 0 is connected again, and node 2 is cut off. Node 0 leads with the vote of node 3, and trains.
//   5. The agent of node 3 is killed, its workers end after all, and node 2 is connected again. Node 2 is still in the round
//      that node 3 led. With a death notice, node 2 would get the vote that node 0 already has.
// Returns true if node 0 and node 2 train at the same time.
bool two_jobs_train(const Rules& rules) {
  FewNodes job(4, /*min_nodes=*/1, /*max_nodes=*/4, rules);
  const auto works = [&](std::initializer_list<int> numbers) {
    const auto nodes = static_cast<std::int32_t>(numbers.size());
    return job.until([&] { return std::all_of(numbers.begin(), numbers.end(), [&](int n) { return job.works(n, nodes); }); },
                     "a round");
  };
  for (const int number : {0, 1, 2, 3}) job.start(number);
  EXPECT_TRUE(works({0, 1, 2, 3}));
  job.pass(seconds(3));
  job.cut_off(0);
  EXPECT_TRUE(works({1, 2, 3}));
  job.pass(seconds(3));
  job.kill(1);
  EXPECT_TRUE(works({2, 3}));
  EXPECT_TRUE(job.leads(3));
  EXPECT_EQ(job.rank_of(3), 0);
  job.pass(seconds(3));

  job[3].stuck = true;
  job.worker_fails(2);
  EXPECT_TRUE(job.until([&] { return !job.leads(3); }, "its stepping down"));
  job.cut_off(2);
  job.heal(0);
  EXPECT_TRUE(works({0}));
  job.kill(3);
  job.heal(2);
  job.reaped(3);
  return static_cast<bool>(job.until([&] { return job.works(0, 1) && job.works(2, 1); }, "two jobs", seconds(3)));
}

TEST(SteppedDownCoordinator, RevokesItsDeathNotice) {
  EXPECT_FALSE(two_jobs_train(Rules{}));
  Rules sends_notice;
  sends_notice.step_down_revokes_notice = false;
  EXPECT_TRUE(two_jobs_train(sends_notice)) << "the rule is not needed in this story";
}

}  // namespace
}  // namespace ddprun::rendezvous
