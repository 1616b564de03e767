// Tests StragglerState. Each test adds the step times of all ranks and compares the findings, which are converted to text.
#include "launcher/stragglers/straggler_state.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ddprun {
namespace {

using Texts = std::vector<std::string>;

class StragglerStateTest : public testing::Test {
 protected:
  StragglerStateTest() { begin(4); }
  void begin(int world, bool exchange = false) {
    world_ = world;
    step_ = 0;
    state_.begin_round(world, exchange);
  }
  // Adds `count` steps. Each rank computes for 20 ms, waits until the slowest rank has computed, and communicates for 5 ms.
  // `slow` changes the times of a rank before the waiting times are computed. Returns the findings.
  Texts steps(
      int count, const std::function<void(RankPace&)>& slow = [](RankPace&) {}, double exchange = 0.005) {
    Texts texts;
    for (int i = 0; i < count; ++i) {
      ++step_;
      std::vector<RankPace> paces;
      double longest = 0;
      for (int rank = 0; rank < world_; ++rank) {
        RankPace& pace = paces.emplace_back(RankPace{.rank = rank, .step = step_, .own = 0.020});
        slow(pace);
        longest = std::max(longest, pace.own);
      }
      for (RankPace& pace : paces) {
        pace.waiting = longest - pace.own + exchange;
        state_.add(pace);
        for (const Straggler& finding : state_.judge()) texts.push_back(text_of(finding));
      }
    }
    return texts;
  }
  static std::string text_of(const Straggler& finding) {
    return std::to_string(finding.rank) + " " + name_of(finding.kind) + (finding.ended ? " ended" : "");
  }
  // Makes one rank `more` seconds slower per step. `part` is the counter that explains the extra time.
  static auto slower(int rank, double more, double RankPace::*part = nullptr) {
    return [=](RankPace& pace) {
      if (pace.rank != rank) return;
      pace.own += more;
      if (part != nullptr) pace.*part += more;
    };
  }

  int world_ = 0;
  std::int64_t step_ = 0;
  StragglerState state_;
};

TEST_F(StragglerStateTest, EqualRanksAreNotStragglers) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0, 0.004);
  EXPECT_EQ(steps(5000, [&](RankPace& pace) { pace.own += noise(random); }), Texts{});
}

TEST_F(StragglerStateTest, AnyStragglerIsFoundWithinTwentySteps) {
  for (int rank = 0; rank < 4; ++rank) {
    begin(4);
    EXPECT_EQ(steps(30), Texts{});
    EXPECT_EQ(steps(20, slower(rank, 0.015)), Texts{std::to_string(rank) + " compute"});
    EXPECT_EQ(steps(1000, slower(rank, 0.015)), Texts{}) << "it is reported once";
    EXPECT_EQ(steps(20), Texts{std::to_string(rank) + " compute ended"});
    EXPECT_EQ(steps(1000), Texts{});
  }
}

TEST_F(StragglerStateTest, TwoRanksAreEnough) {
  begin(2);
  EXPECT_EQ(steps(20, slower(1, 0.020)), Texts{"1 compute"});
}

TEST_F(StragglerStateTest, ARankSlowFromTheStartIsFoundEarly) {
  EXPECT_EQ(steps(10, slower(2, 0.020)), Texts{"2 compute"});
}

TEST_F(StragglerStateTest, SystemCountersDecideTheKind) {
  const auto kind_of = [this](double RankPace::*part) {
    begin(4);
    steps(30);
    return steps(20, slower(3, 0.020, part)).at(0);
  };
  EXPECT_EQ(kind_of(&RankPace::queued), "3 processor");
  EXPECT_EQ(kind_of(&RankPace::stopped), "3 processor");
  EXPECT_EQ(kind_of(&RankPace::disk), "3 disk");
  EXPECT_EQ(kind_of(&RankPace::data), "3 data");
  EXPECT_EQ(kind_of(&RankPace::asleep), "3 compute");
}

// Each rank loads data for 10 ms of its 20 ms, and waits for processors for 4 ms. All ranks have these delays, so they do not
// explain why rank 1 is slower.
TEST_F(StragglerStateTest, CommonDelaysExplainNothing) {
  EXPECT_EQ(steps(30,
                  [](RankPace& pace) {
                    pace.data = 0.010;
                    pace.queued = 0.004;
                    if (pace.rank == 1) pace.own += 0.015;
                  }),
            Texts{"1 compute"});
}

// On a busy machine all ranks wait for processors. In each second a different rank waits longest.
TEST_F(StragglerStateTest, WithoutEnoughProcessorsThereIsNoStraggler) {
  const auto busy = [](int most) {
    return [most](RankPace& pace) {
      pace.queued = pace.rank == most ? 0.030 : 0.012;
      pace.own += pace.queued;
    };
  };
  for (int i = 0; i < 40; ++i) EXPECT_EQ(steps(40, busy(i % 4)), Texts{}) << i;
  EXPECT_EQ(steps(40,
                  [&](RankPace& pace) {
                    busy(-1)(pace);
                    slower(2, 0.080, &RankPace::data)(pace);
                  }),
            Texts{"2 data"})
      << "one that is much slower is named all the same";
  begin(4);
  EXPECT_EQ(steps(40,
                  [&](RankPace& pace) {
                    busy(-1)(pace);
                    slower(1, 0.030, &RankPace::stopped)(pace);
                  }),
            Texts{"1 processor"})
      << "one that is stopped";
}

// A slow disk or processor also delays the batch. The finding must name the disk or the processor and not the data as the
// cause.
TEST_F(StragglerStateTest, DiskOrProcessorExplainsALateBatch) {
  const auto late = [](double RankPace::*part) {
    return [=](RankPace& pace) {
      if (pace.rank != 1) return;
      pace.own += 0.020;
      pace.data += 0.020;
      pace.*part += 0.020;
    };
  };
  EXPECT_EQ(steps(20, late(&RankPace::disk)), Texts{"1 disk"});
  begin(4);
  EXPECT_EQ(steps(20, late(&RankPace::queued)), Texts{"1 processor"});
  begin(4);
  EXPECT_EQ(steps(20, late(&RankPace::asleep)), Texts{"1 data"});
}

// Rank 0 saves a checkpoint in one step. That step takes as long as forty other steps.
TEST_F(StragglerStateTest, OneLongStepIsNotAStraggler) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(steps(1, slower(0, 0.800)), Texts{});
    EXPECT_EQ(steps(30), Texts{});
  }
}

// SIGSTOP stops rank 2 for 200 ms in every seventh step.
TEST_F(StragglerStateTest, PeriodicPausesAreFound) {
  steps(30);
  Texts texts;
  for (int i = 0; i < 10; ++i) {
    for (const std::string& line : steps(1, slower(2, 0.200, &RankPace::stopped))) texts.push_back(line);
    for (const std::string& line : steps(6)) texts.push_back(line);
  }
  EXPECT_EQ(texts, Texts{"2 processor"});
}

// Rank 1 is stopped while it waits. Both ranks report the same waiting time. Only the time for which rank 1 was stopped shows
// which rank delays the other.
TEST_F(StragglerStateTest, StopsWhileWaitingDelayTheOthers) {
  begin(2);
  std::vector<Straggler> found;
  for (std::int64_t step = 1; step <= 20; ++step) {
    state_.add({.rank = 0, .step = step, .own = 0.020, .waiting = 0.045});
    state_.add({.rank = 1, .step = step, .own = 0.020, .waiting = 0.045, .stopped = 0.040});
    for (const Straggler& finding : state_.judge()) found.push_back(finding);
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(text_of(found[0]), "1 processor");
}

// The computing times of the ranks differ, but no rank waits. Either the ranks exchange no data, or the exchange is not
// measured.
TEST_F(StragglerStateTest, WithoutWaitingRanksThereIsNoStraggler) {
  for (std::int64_t step = 1; step <= 100; ++step) {
    for (int rank = 0; rank < 4; ++rank) state_.add({.rank = rank, .step = step, .own = rank == 1 ? 0.050 : 0.020});
    EXPECT_TRUE(state_.judge().empty());
  }
}

TEST_F(StragglerStateTest, ShortStepsNeedTwoMillisecondsDifference) {
  const auto quick = [](double more) { return [=](RankPace& pace) { pace.own = pace.rank == 1 ? 0.001 + more : 0.001; }; };
  EXPECT_EQ(steps(100, quick(0.0015), 0.0001), Texts{});
  EXPECT_EQ(steps(20, quick(0.0030), 0.0001), Texts{"1 compute"});
}

// Each rank combines its short steps into entries independently. So the entries of two ranks start at different steps.
TEST_F(StragglerStateTest, PiecesNeedNotStartAtTheSameStep) {
  begin(2);
  Texts texts;
  for (std::int64_t step = 1; step <= 300; ++step) {
    if (step % 5 == 0) state_.add({.rank = 0, .step = step, .steps = 5, .own = 0.010, .waiting = 0.030});
    if (step % 3 == 0) state_.add({.rank = 1, .step = step, .steps = 3, .own = 0.023, .waiting = 0.001});
    for (const Straggler& finding : state_.judge()) texts.push_back(text_of(finding));
  }
  EXPECT_EQ(texts, Texts{"1 compute"});
}

TEST_F(StragglerStateTest, ANewStragglerFollowsTheFirst) {
  steps(30);
  steps(20, slower(1, 0.020));
  EXPECT_EQ(steps(30, slower(2, 0.020)), (Texts{"1 compute ended", "2 compute"}));
}

TEST_F(StragglerStateTest, ANewRoundStartsWithoutData) {
  steps(20, slower(1, 0.020));
  begin(4);
  EXPECT_EQ(steps(100), Texts{});
}

// The script has loaded an earlier state, so it reports lower step numbers again.
TEST_F(StragglerStateTest, DecreasingStepsResetTheData) {
  steps(40);
  step_ = 10;
  EXPECT_EQ(steps(20, slower(1, 0.020)), Texts{"1 compute"});
}

// A rank reports the time of an evaluation under the number of the preceding step. All ranks evaluate for 30 ms after every
// fifth step.
TEST_F(StragglerStateTest, ARepeatedStepCountsOnce) {
  begin(2);
  Straggler found;
  Texts texts;
  for (std::int64_t step = 1; step <= 60; ++step) {
    state_.add({.rank = 0, .step = step, .own = 0.020, .waiting = 0.031});
    state_.add({.rank = 1, .step = step, .own = 0.050, .waiting = 0.001, .data = 0.030});
    if (step % 5 == 0) {
      for (const int rank : {0, 1}) state_.add({.rank = rank, .step = step, .own = 0.030});
    }
    for (const Straggler& finding : state_.judge()) {
      texts.push_back(text_of(finding));
      found = finding;
    }
  }
  EXPECT_EQ(texts, Texts{"1 data"});
  EXPECT_EQ(found.step, 10);
  EXPECT_NEAR(found.own_s, 0.056, 1e-9) << "ten steps of 50 ms, two evaluations of 30 ms";
  EXPECT_NEAR(found.others_s, 0.026, 1e-9);
}

TEST_F(StragglerStateTest, ASlowExchangeIsReportedOnlyOnSeveralNodes) {
  const auto even = [](RankPace&) {};
  begin(4, true);
  EXPECT_EQ(steps(100), Texts{});
  EXPECT_EQ(steps(20, even, 0.060), Texts{"-1 network"});
  EXPECT_EQ(steps(100, even, 0.060), Texts{});
  EXPECT_EQ(steps(20), Texts{"-1 network ended"});
  begin(4, false);
  steps(100);
  EXPECT_EQ(steps(100, even, 0.060), Texts{});
}

// Node 2 has the slow link, so all of its connections are slow. Each of the other nodes has a fast connection.
TEST_F(StragglerStateTest, TheNodeWithoutFastConnectionsHasTheSlowLink) {
  const auto named = [this](std::vector<RankLink> of_0, std::vector<RankLink> of_1, std::vector<RankLink> of_2) {
    begin(3, true);
    steps(30);
    state_.set_links(0, std::move(of_0));
    state_.set_links(1, std::move(of_1));
    state_.set_links(2, std::move(of_2));
    return steps(
        20, [](RankPace&) {}, 0.080);
  };
  EXPECT_EQ(named({{"a", "b", 0.0002}}, {{"b", "c", 0.040}}, {{"c", "a", 0.050}}), Texts{"2 network"});
  EXPECT_EQ(named({{"a", "b", 0.030}}, {{"b", "c", 0.0003}}, {{"c", "a", 0.050}}), Texts{"0 network"});
  EXPECT_EQ(named({{"a", "b", 0.030}}, {{"b", "c", 0.040}}, {{"c", "a", 0.050}}), Texts{"-1 network"}) << "all are slow";
  EXPECT_EQ(named({{"a", "b", 0.030}}, {{"b", "a", 0.0002}}, {}), Texts{"-1 network"})
      << "with two nodes the slow one is unknown";
  EXPECT_EQ(named({}, {}, {}), Texts{"-1 network"});
}

TEST_F(StragglerStateTest, ImpossibleNumbersAreIgnored) {
  for (const int rank : {-1, 4, 1'000'000}) state_.add({.rank = rank, .step = 1});
  state_.add({.rank = 0, .step = -5});
  state_.add({.rank = 0, .step = 1, .steps = 0});
  state_.add({.rank = 0, .step = 1, .steps = -3});
  state_.add({.rank = 0, .step = 1, .steps = std::numeric_limits<std::int64_t>::max()});
  state_.begin_round(-2, false);
  state_.add({.rank = 0, .step = 1});
  EXPECT_TRUE(state_.judge().empty());
  begin(2);
  const double nan = std::nan("");
  for (std::int64_t step = 1; step <= 40; ++step) {
    state_.add({.rank = 0, .step = step, .own = nan, .waiting = -1, .queued = -nan});
    state_.add({.rank = 1, .step = step, .own = 0.001, .waiting = 0.001});
    EXPECT_TRUE(state_.judge().empty());
  }
}

TEST_F(StragglerStateTest, AFindingHasItsNumbers) {
  begin(2);
  Straggler found;
  for (std::int64_t step = 1; step <= 20; ++step) {
    state_.add({.rank = 0, .step = step, .own = 0.020, .waiting = 0.045});
    state_.add({.rank = 1, .step = step, .own = 0.060, .waiting = 0.005, .data = 0.041});
    for (const Straggler& finding : state_.judge()) found = finding;
  }
  found.pid = 4711;
  EXPECT_EQ(describe(found),
            "rank 1 (pid 4711) keeps the others waiting: its own work takes 60 ms per step, that of the others 20 ms, in steps "
            "1 to 10; data: it waited for its next batch for 40 ms of this time");
}

}  // namespace
}  // namespace ddprun
