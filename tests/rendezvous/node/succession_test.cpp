// Whom a candidate counts: those rules of succession.hpp and of the vote that only rare schedules need, so that few seeds of
// the simulator show them.
#include "rendezvous/node/succession.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Three nodes took part in round 1 of term 1, which is committed; node 1 coordinated it and is gone, node 2 stands.
class ThreeNodes : public testing::Test {
 protected:
  static Standing standing(RoundId round, std::int32_t rank) {
    Standing standing;
    standing.promised_term = 1;
    standing.current = Config{.id = round, .born = round.term, .nodes = 3, .rank = rank};
    return standing;
  }
  static Hello hello(std::uint8_t node, std::uint64_t attempt, Standing standing) {
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = attempt;
    hello.standing = std::move(standing);
    return hello;
  }
  Succession::Candidate candidate() const {
    return {.id = {2}, .standing = standing_, .place_in_line = 1, .may_stand_at = time_, .lease = seconds(5)};
  }
  bool stands() {
    if (!succession_.attempt(candidate(), {time_ + seconds(1), 0})) return false;
    standing_.promised_term = succession_.election()->term;
    return true;
  }
  void vote(LinkId link) {
    const std::uint64_t term = succession_.election()->term;
    succession_.hear(link, Vote{.term = term, .promised_term = term, .echo = 1});
  }

  Time time_{seconds(1000)};
  Standing standing_ = standing({1, 1}, 1);
  Succession succession_{Rules{}};
};

TEST_F(ThreeNodes, AsksOnceAMajorityIsThereAndLeadsOnceItHasVoted) {
  EXPECT_FALSE(stands());
  succession_.add(7, hello(3, 1, standing({1, 1}, 2)));
  ASSERT_TRUE(stands());
  EXPECT_EQ(succession_.request_for(candidate()).term, 2u);
  EXPECT_FALSE(succession_.won(candidate()).has_value());
  vote(7);
  const auto won = succession_.won(candidate());
  ASSERT_TRUE(won.has_value());
  EXPECT_EQ(won->promised_term, 2u);
  EXPECT_EQ(won->current.id, (RoundId{1, 1}));
}

TEST_F(ThreeNodes, CountsANodeThatIsThereTwiceOnce) {
  standing_ = standing({1, 1}, -1);  // a spare
  succession_.add(7, hello(3, 1, standing({1, 1}, 2)));
  succession_.add(8, hello(3, 2, standing({1, 1}, 2)));
  EXPECT_FALSE(stands());
}

// A connection that was cut may end long after its node said more over another one.
TEST_F(ThreeNodes, CountsANodeByWhatItSaidLastWhicheverConnectionCameFirst) {
  succession_.add(7, hello(3, 1, standing({1, 0}, 2)));
  EXPECT_FALSE(stands());
  succession_.add(8, hello(3, 2, standing({1, 1}, 2)));
  EXPECT_TRUE(stands());
}

TEST_F(ThreeNodes, AVoteForAnotherTermOrFromNobodyIsNone) {
  succession_.add(7, hello(3, 1, standing({1, 1}, 2)));
  ASSERT_TRUE(stands());
  succession_.hear(7, Vote{.term = 2, .promised_term = 4, .echo = 1});
  succession_.hear(9, Vote{.term = 2, .promised_term = 2, .echo = 1});
  EXPECT_FALSE(succession_.won(candidate()).has_value());
}

}  // namespace
}  // namespace ddprun::rendezvous
