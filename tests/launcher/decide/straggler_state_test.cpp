// StragglerState: the step times of each rank go in, and the ranks that the others wait for come out as text.
#include "launcher/decide/straggler_state.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ddprun {
namespace {

using Said = std::vector<std::string>;

class StragglerStateTest : public testing::Test {
 protected:
  StragglerStateTest() { begin(4); }
  void begin(int world, bool exchange = false) {
    world_ = world;
    step_ = 0;
    state_.begin_round(world, exchange);
  }
  // `count` steps in which each rank computes for 20 ms, exchanges for 5 ms, and waits for slower ranks. `slow` changes a
  // rank's times first.
  Said steps(
      int count, const std::function<void(RankPace&)>& slow = [](RankPace&) {}, double exchange = 0.005) {
    Said said;
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
        for (const Straggler& finding : state_.judge()) said.push_back(words_of(finding));
      }
    }
    return said;
  }
  static std::string words_of(const Straggler& finding) {
    return std::to_string(finding.rank) + " " + name_of(finding.kind) + (finding.ended ? " ended" : "");
  }
  // A rank that takes that much longer, for the given reason.
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

TEST_F(StragglerStateTest, RanksThatTakeEquallyLongAreNoStragglers) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0, 0.004);
  EXPECT_EQ(steps(5000, [&](RankPace& pace) { pace.own += noise(random); }), Said{});
}

TEST_F(StragglerStateTest, AnyRankIsNamedWithinTwentyStepsAndItsEndIsSaid) {
  for (int rank = 0; rank < 4; ++rank) {
    begin(4);
    EXPECT_EQ(steps(30), Said{});
    EXPECT_EQ(steps(20, slower(rank, 0.015)), Said{std::to_string(rank) + " compute"});
    EXPECT_EQ(steps(1000, slower(rank, 0.015)), Said{}) << "it is said once";
    EXPECT_EQ(steps(20), Said{std::to_string(rank) + " compute ended"});
    EXPECT_EQ(steps(1000), Said{});
  }
}

TEST_F(StragglerStateTest, TwoRanksAreEnough) {
  begin(2);
  EXPECT_EQ(steps(20, slower(1, 0.020)), Said{"1 compute"});
}

TEST_F(StragglerStateTest, OneThatIsSlowFromTheBeginningIsNamedSoon) {
  EXPECT_EQ(steps(10, slower(2, 0.020)), Said{"2 compute"});
}

TEST_F(StragglerStateTest, WhatTheSystemCountsIsTheKind) {
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

// All ranks load data for 10 ms of their 20, and wait for CPUs for 4 ms.
TEST_F(StragglerStateTest, WhatAllRanksDoExplainsNothing) {
  EXPECT_EQ(steps(30,
                  [](RankPace& pace) {
                    pace.data = 0.010;
                    pace.queued = 0.004;
                    if (pace.rank == 1) pace.own += 0.015;
                  }),
            Said{"1 compute"});
}

// On a busy machine each rank waits for CPUs. Different ranks take turns in waiting longer, for a second each.
TEST_F(StragglerStateTest, WhereAllRanksLackProcessorsNobodyStraggles) {
  const auto busy = [](int most) {
    return [most](RankPace& pace) {
      pace.queued = pace.rank == most ? 0.030 : 0.012;
      pace.own += pace.queued;
    };
  };
  for (int i = 0; i < 40; ++i) EXPECT_EQ(steps(40, busy(i % 4)), Said{}) << i;
  EXPECT_EQ(steps(40,
                  [&](RankPace& pace) {
                    busy(-1)(pace);
                    slower(2, 0.080, &RankPace::data)(pace);
                  }),
            Said{"2 data"})
      << "one that is much slower is named all the same";
  begin(4);
  EXPECT_EQ(steps(40,
                  [&](RankPace& pace) {
                    busy(-1)(pace);
                    slower(1, 0.030, &RankPace::stopped)(pace);
                  }),
            Said{"1 processor"})
      << "one that is stopped";
}

// A slow disk delays the batch: both show up, and the disk is the reason.
TEST_F(StragglerStateTest, ADiskOrAProcessorIsTheReasonOfALateBatch) {
  const auto late = [](double RankPace::*part) {
    return [=](RankPace& pace) {
      if (pace.rank != 1) return;
      pace.own += 0.020;
      pace.data += 0.020;
      pace.*part += 0.020;
    };
  };
  EXPECT_EQ(steps(20, late(&RankPace::disk)), Said{"1 disk"});
  begin(4);
  EXPECT_EQ(steps(20, late(&RankPace::queued)), Said{"1 processor"});
  begin(4);
  EXPECT_EQ(steps(20, late(&RankPace::asleep)), Said{"1 data"});
}

// A checkpoint of rank 0 takes as long as forty steps.
TEST_F(StragglerStateTest, OneLongStepIsNoStraggler) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(steps(1, slower(0, 0.800)), Said{});
    EXPECT_EQ(steps(30), Said{});
  }
}

// SIGSTOP for 200 ms in every seventh step.
TEST_F(StragglerStateTest, PulsesAreNamed) {
  steps(30);
  Said said;
  for (int i = 0; i < 10; ++i) {
    for (const std::string& line : steps(1, slower(2, 0.200, &RankPace::stopped))) said.push_back(line);
    for (const std::string& line : steps(6)) said.push_back(line);
  }
  EXPECT_EQ(said, Said{"2 processor"});
}

// By its own clock it waited for the others, just as they waited for it.
TEST_F(StragglerStateTest, ARankThatIsStoppedWhileItWaitsKeepsTheOthersWaiting) {
  begin(2);
  std::vector<Straggler> found;
  for (std::int64_t step = 1; step <= 20; ++step) {
    state_.add({.rank = 0, .step = step, .own = 0.020, .waiting = 0.045});
    state_.add({.rank = 1, .step = step, .own = 0.020, .waiting = 0.045, .stopped = 0.040});
    for (const Straggler& finding : state_.judge()) found.push_back(finding);
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(words_of(found[0]), "1 processor");
}

// The ranks' own times differ, but no rank waits: they exchange nothing, or the exchange is not measured.
TEST_F(StragglerStateTest, NobodyStragglesForWhomNobodyWaits) {
  for (std::int64_t step = 1; step <= 100; ++step) {
    for (int rank = 0; rank < 4; ++rank) state_.add({.rank = rank, .step = step, .own = rank == 1 ? 0.050 : 0.020});
    EXPECT_TRUE(state_.judge().empty());
  }
}

TEST_F(StragglerStateTest, QuickStepsHaveToDifferByTwoMilliseconds) {
  const auto quick = [](double more) { return [=](RankPace& pace) { pace.own = pace.rank == 1 ? 0.001 + more : 0.001; }; };
  EXPECT_EQ(steps(100, quick(0.0015), 0.0001), Said{});
  EXPECT_EQ(steps(20, quick(0.0030), 0.0001), Said{"1 compute"});
}

// Ranks merge short steps as they finish, so the pieces of two ranks do not begin at the same steps.
TEST_F(StragglerStateTest, PiecesOfSeveralStepsNeedNotBeginAlike) {
  begin(2);
  Said said;
  for (std::int64_t step = 1; step <= 300; ++step) {
    if (step % 5 == 0) state_.add({.rank = 0, .step = step, .steps = 5, .own = 0.010, .waiting = 0.030});
    if (step % 3 == 0) state_.add({.rank = 1, .step = step, .steps = 3, .own = 0.023, .waiting = 0.001});
    for (const Straggler& finding : state_.judge()) said.push_back(words_of(finding));
  }
  EXPECT_EQ(said, Said{"1 compute"});
}

TEST_F(StragglerStateTest, AnotherRankIsNamedWhenTheFirstHasCaughtUp) {
  steps(30);
  steps(20, slower(1, 0.020));
  EXPECT_EQ(steps(30, slower(2, 0.020)), (Said{"1 compute ended", "2 compute"}));
}

TEST_F(StragglerStateTest, ARoundBeginsWithNothing) {
  steps(20, slower(1, 0.020));
  begin(4);
  EXPECT_EQ(steps(100), Said{});
}

// A script that loaded an earlier state reports lower steps again.
TEST_F(StragglerStateTest, StepsThatGoBackBeginAgain) {
  steps(40);
  step_ = 10;
  EXPECT_EQ(steps(20, slower(1, 0.020)), Said{"1 compute"});
}

// The metrics of an evaluation come with the step before it. In every fifth step all ranks take 30 ms for it.
TEST_F(StragglerStateTest, AStepThatIsToldAgainIsStillOneStep) {
  begin(2);
  Straggler found;
  Said said;
  for (std::int64_t step = 1; step <= 60; ++step) {
    state_.add({.rank = 0, .step = step, .own = 0.020, .waiting = 0.031});
    state_.add({.rank = 1, .step = step, .own = 0.050, .waiting = 0.001, .data = 0.030});
    if (step % 5 == 0) {
      for (const int rank : {0, 1}) state_.add({.rank = rank, .step = step, .own = 0.030});
    }
    for (const Straggler& finding : state_.judge()) {
      said.push_back(words_of(finding));
      found = finding;
    }
  }
  EXPECT_EQ(said, Said{"1 data"});
  EXPECT_EQ(found.step, 10);
  EXPECT_NEAR(found.own_s, 0.056, 1e-9) << "ten steps of 50 ms, two evaluations of 30 ms";
  EXPECT_NEAR(found.others_s, 0.026, 1e-9);
}

TEST_F(StragglerStateTest, TheExchangeItselfIsNamedOnSeveralNodesOnly) {
  const auto even = [](RankPace&) {};
  begin(4, true);
  EXPECT_EQ(steps(100), Said{});
  EXPECT_EQ(steps(20, even, 0.060), Said{"-1 network"});
  EXPECT_EQ(steps(100, even, 0.060), Said{});
  EXPECT_EQ(steps(20), Said{"-1 network ended"});
  begin(4, false);
  steps(100);
  EXPECT_EQ(steps(100, even, 0.060), Said{});
}

// Node 2 has the slow link: all its connections are slow, while each other node has a fast one.
TEST_F(StragglerStateTest, TheNodeWithoutAQuickConnectionHasTheSlowLink) {
  const auto named = [this](std::vector<RankLink> of_0, std::vector<RankLink> of_1, std::vector<RankLink> of_2) {
    begin(3, true);
    steps(30);
    state_.set_links(0, std::move(of_0));
    state_.set_links(1, std::move(of_1));
    state_.set_links(2, std::move(of_2));
    return steps(
        20, [](RankPace&) {}, 0.080);
  };
  EXPECT_EQ(named({{"a", "b", 0.0002}}, {{"b", "c", 0.040}}, {{"c", "a", 0.050}}), Said{"2 network"});
  EXPECT_EQ(named({{"a", "b", 0.030}}, {{"b", "c", 0.0003}}, {{"c", "a", 0.050}}), Said{"0 network"});
  EXPECT_EQ(named({{"a", "b", 0.030}}, {{"b", "c", 0.040}}, {{"c", "a", 0.050}}), Said{"-1 network"}) << "all are slow";
  EXPECT_EQ(named({{"a", "b", 0.030}}, {{"b", "a", 0.0002}}, {}), Said{"-1 network"}) << "of two nodes nobody can tell";
  EXPECT_EQ(named({}, {}, {}), Said{"-1 network"});
}

TEST_F(StragglerStateTest, NumbersThatCannotBeChangeNothing) {
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

TEST_F(StragglerStateTest, AFindingTellsItsNumbers) {
  begin(2);
  Straggler found;
  for (std::int64_t step = 1; step <= 20; ++step) {
    state_.add({.rank = 0, .step = step, .own = 0.020, .waiting = 0.045});
    state_.add({.rank = 1, .step = step, .own = 0.060, .waiting = 0.005, .data = 0.041});
    for (const Straggler& finding : state_.judge()) found = finding;
  }
  found.pid = 4711;
  EXPECT_EQ(
      describe(found),
      "rank 1 (pid 4711) keeps the others waiting: 60 ms a step of its own, the others 20 ms, in steps 1 to 10; data: for "
      "40 ms of it, it waited for its batch");
}

}  // namespace
}  // namespace ddprun
