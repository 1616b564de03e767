// Workers that have ended successfully while others run: a real timer with a short limit.
#include "launcher/workers/early_end.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace ddprun {
namespace {

class EarlyEndTest : public testing::Test {
 protected:
  EarlyEnd make() {
    return {io_,
            {.at_work = [this] { return at_work_; },
             .noticed =
                 [this](double, const std::vector<int>& ended, const std::vector<int>& running) {
                   said_.push_back({ended, running});
                 }},
            std::chrono::milliseconds(1)};
  }
  boost::asio::io_context io_{1};
  bool at_work_ = true;
  std::vector<std::array<std::vector<int>, 2>> said_;
};

TEST_F(EarlyEndTest, WhoEndedWellIsSaidOnceWithWhoRunsOn) {
  EarlyEnd early = make();
  early.begin_round(4);
  early.ended(1, true);
  early.ended(3, true);
  io_.run();
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_EQ(said_[0][0], (std::vector<int>{1, 3}));
  EXPECT_EQ(said_[0][1], (std::vector<int>{0, 2}));
  early.ended(2, true);
  io_.restart();
  io_.run();
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(EarlyEndTest, NothingIsSaidOfAnEndOfAllOrOfARoundThatIsBeingStopped) {
  EarlyEnd early = make();
  early.begin_round(2);
  early.ended(0, true);
  early.ended(1, true);
  io_.run();
  early.begin_round(2);
  early.ended(0, false);  // this counts as a failure
  io_.restart();
  io_.run();
  early.begin_round(2);
  early.ended(0, true);
  at_work_ = false;
  io_.restart();
  io_.run();
  EXPECT_TRUE(said_.empty());
}

}  // namespace
}  // namespace ddprun
