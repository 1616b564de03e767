// Tests the division of a file among ranks: each byte is read once, and each rank receives each part once.
#include "trainer/layout/read_division.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace ddprun::trainer {
namespace {

constexpr int kMaxMembers = 17;

TEST(ReadDivision, PartsCoverTheWindowOnceInOrder) {
  for (int members = 1; members <= kMaxMembers; ++members) {
    for (const std::int64_t bytes : {0, 1, 2, 16, 17, 1000, 1 << 24}) {
      std::int64_t end = 0;
      for (int member = 0; member < members; ++member) {
        const ByteRange part = part_of(bytes, member, members);
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.size(), bytes / members);
        EXPECT_LE(part.size(), bytes / members + 1);
        end = part.end;
      }
      EXPECT_EQ(end, bytes) << members << " members";
    }
  }
}

TEST(ReadDivision, PartsOfALargeFileDoNotOverflow) {
  const std::int64_t bytes = std::int64_t{1} << 61;
  EXPECT_EQ(part_of(bytes, 7, 8), (ByteRange{.begin = bytes / 8 * 7, .end = bytes}));
}

TEST(ReadDivision, EachPairOfMembersMeetsOnce) {
  for (int members = 1; members <= kMaxMembers; ++members) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < exchange_rounds(members); ++round) {
      int idle = 0;
      for (int member = 0; member < members; ++member) {
        const auto partner = partner_in(round, member, members);
        if (!partner) {
          ++idle;
          continue;
        }
        EXPECT_NE(*partner, member);
        EXPECT_EQ(partner_in(round, *partner, members), member);
        EXPECT_TRUE(met.emplace(member, *partner).second) << members << " members, round " << round;
      }
      EXPECT_EQ(idle, members % 2);
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(members) * static_cast<std::size_t>(members - 1));
  }
}

TEST(ReadDivision, TheExampleOfTheHeader) {
  const std::vector<std::vector<int>> partners{{3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}};
  EXPECT_EQ(exchange_rounds(4), 3);
  for (int round = 0; round < 3; ++round) {
    for (int member = 0; member < 4; ++member) {
      EXPECT_EQ(partner_in(round, member, 4), partners[static_cast<std::size_t>(round)][static_cast<std::size_t>(member)]);
    }
  }
}

}  // namespace
}  // namespace ddprun::trainer
