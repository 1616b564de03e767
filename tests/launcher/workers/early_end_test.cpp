// Tests the report about workers that exit with code 0 while other workers are still running. The timer is real, with a delay
// of 1 ms.
#include "launcher/workers/early_end.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

class EarlyEndTest : public testing::Test, private EarlyEnd::Agent {
 protected:
  EarlyEnd make() { return {io_, *this, std::chrono::milliseconds(1)}; }
  bool at_work() const override { return at_work_; }
  void report_early_end(double /*seconds*/, std::vector<int> ended, std::vector<int> running) override {
    reports_.push_back({std::move(ended), std::move(running)});
  }

  boost::asio::io_context io_{1};
  bool at_work_ = true;
  std::vector<std::array<std::vector<int>, 2>> reports_;
};

TEST_F(EarlyEndTest, EarlyExitsAreReportedOnce) {
  EarlyEnd early = make();
  early.begin_round(4);
  early.ended(1, true);
  early.ended(3, true);
  io_.run();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0][0], (std::vector<int>{1, 3}));
  EXPECT_EQ(reports_[0][1], (std::vector<int>{0, 2}));
  early.ended(2, true);
  io_.restart();
  io_.run();
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(EarlyEndTest, CompleteOrStoppedRoundsAreNotReported) {
  EarlyEnd early = make();
  early.begin_round(2);
  early.ended(0, true);
  early.ended(1, true);
  io_.run();
  early.begin_round(2);
  early.ended(0, false);  // false means that the exit code is not 0, so the agent handles the exit as a failure
  io_.restart();
  io_.run();
  early.begin_round(2);
  early.ended(0, true);
  at_work_ = false;
  io_.restart();
  io_.run();
  EXPECT_TRUE(reports_.empty());
}

}  // namespace
}  // namespace ddprun
