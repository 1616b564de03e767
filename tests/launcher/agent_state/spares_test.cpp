// Tests the spare interpreters of a script: when the agent's state machine starts them, and which workers they become. A spare
// may outlive the round in which it was started.
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/agent_state/agent_state.hpp"
#include "launcher/agent_state/standbys.hpp"
#include "tests/launcher/agent_state/driven_agent.hpp"

namespace ddprun {
namespace {

using namespace agent_event;  // NOLINT: the test reads as a script
using Texts = std::vector<std::string>;

constexpr auto after(int ms) {
  return Standbys::Clock::time_point{} + std::chrono::milliseconds(ms);
}

std::string spares_in(const AgentAction& action) {
  if (const auto* start = std::get_if<agent_action::StartRound>(&action)) {
    std::string text = "round";
    for (const int number : start->spares) text += " " + std::to_string(number);
    return text;
  }
  if (const auto* start = std::get_if<agent_action::StartStandby>(&action)) return "spare " + std::to_string(start->number);
  return std::holds_alternative<agent_action::DismissStandbys>(action) ? "dismiss" : "";
}

class Spares : public test::DrivenAgent {
 protected:
  Spares() : DrivenAgent(spares_in) {}

  void script(int world, int standbys) {
    world_ = world;
    state_.emplace(AgentSettings{.world_size = world, .restarts = {.max_restarts = 9}, .standbys = standbys});
    EXPECT_EQ(on(Begin{}), Texts{"round"});
  }
  // Makes all workers of the round exit. A signal kills the first worker. Returns the actions that start the next round.
  Lines next_round() {
    dies(0);
    for (int rank = 1; rank < world_; ++rank) dies(rank, SIGTERM);
    Lines lines = on(RoundSwept{});
    return lines.empty() ? on(TimerFired{AgentTimer::kPause}) : lines;
  }
};

TEST_F(Spares, StartOneByOneAfterTheFirstOutput) {
  script(2, 2);
  EXPECT_EQ(on(ScriptPrinted{}), Texts{"spare 2"});
  EXPECT_TRUE(on(ScriptPrinted{}).empty());
  EXPECT_EQ(on(StandbyReady{2}), Texts{"spare 3"});
  EXPECT_TRUE(on(StandbyReady{3}).empty());
}

TEST_F(Spares, StartLaterForASilentScript) {
  script(1, 1);
  ASSERT_TRUE(timers_.contains(AgentTimer::kSpares));
  EXPECT_EQ(on(TimerFired{AgentTimer::kSpares}), Texts{"spare 1"});
}

// The replacement must receive the fact that a worker ran out of memory, because it must use the same batch size as the other
// ranks (docs/out-of-memory.md).
TEST_F(Spares, ReplacementOfAnUnresponsiveSpareGetsRestartFacts) {
  script(2, 2);
  on(ScriptPrinted{});
  on(StandbyReady{2});
  on(WorkerExited{.rank = 0, .pid = 100, .status = {.code = 1}, .time_ns = now_.realtime_ns, .out_of_memory = "MemoryError"});
  dies(1, SIGTERM);
  ASSERT_EQ(on(RoundSwept{}), Texts{"round 2"});
  later(1);
  const auto actions = state_->on(SpareUnresponsive{0}, now_);
  ASSERT_EQ(actions.size(), 1u);
  const auto& start = std::get<agent_action::StartWorker>(actions[0]);
  EXPECT_EQ(start.facts, (RestartFacts{"out_of_memory", 1}));
  EXPECT_EQ(start.restart_count, 1);
  EXPECT_EQ(start.round, 1);
}

TEST_F(Spares, TheNextRoundUsesReadySparesAndRefills) {
  script(3, 3);
  on(ScriptPrinted{});
  on(StandbyReady{3});
  on(StandbyReady{4});  // spare 4 is ready, and spare 5 is still loading
  EXPECT_EQ(next_round(), Texts{"round 3 4"});
  EXPECT_TRUE(on(StandbyReady{5}).empty());
  EXPECT_EQ(on(ScriptPrinted{}), Texts{"spare 6"});
  EXPECT_EQ(on(StandbyReady{6}), Texts{"spare 7"});
  EXPECT_EQ(next_round(), Texts{"round 5 6"});
  on(StandbyReady{7});
  EXPECT_EQ(on(ScriptPrinted{}), Texts{"spare 3"});  // the worker with number 3 has ended, so that number is free again
}

TEST_F(Spares, NoneStartsWhileTheJobStops) {
  script(1, 1);
  on(SignalArrived{SIGTERM});
  EXPECT_TRUE(on(ScriptPrinted{}).empty());
}

TEST_F(Spares, AnEndedSpareIsReplacedAfterAPause) {
  script(1, 1);
  on(ScriptPrinted{});
  EXPECT_TRUE(on(StandbyGone{.number = 1, .pid = 7, .message = "killed"}).empty());
  EXPECT_EQ(timers_.at(AgentTimer::kSpares), std::chrono::milliseconds(1000));
  EXPECT_TRUE(on(ScriptPrinted{}).empty());
  later(1000);
  EXPECT_EQ(on(TimerFired{AgentTimer::kSpares}), Texts{"spare 1"});
  EXPECT_EQ(emitted<StandbyEnded>().at(0).next_in_s, 1);
  EXPECT_TRUE(emitted<RoundFailed>().empty());
}

TEST_F(Spares, APauseContinuesAcrossARestart) {
  script(1, 2);
  on(ScriptPrinted{});
  on(StandbyReady{1});
  for (int i = 0; i < 4; ++i) {
    on(StandbyGone{.number = 2, .pid = 7, .message = "killed"});
    if (i < 3) {
      later(60'000);
      EXPECT_EQ(on(TimerFired{AgentTimer::kSpares}), Texts{"spare 2"});
    }
  }
  EXPECT_EQ(timers_.at(AgentTimer::kSpares), std::chrono::milliseconds(8000));
  EXPECT_EQ(next_round(), Texts{"round 1"});
  later(5000);  // the timer of the new round fires before 8 s have passed after the last failure of a spare
  EXPECT_TRUE(on(TimerFired{AgentTimer::kSpares}).empty());
  EXPECT_LE(timers_.at(AgentTimer::kSpares), std::chrono::milliseconds(3000));
  EXPECT_GT(timers_.at(AgentTimer::kSpares), std::chrono::milliseconds(2900));
  later(3000);
  EXPECT_EQ(on(TimerFired{AgentTimer::kSpares}), Texts{"spare 2"});
}

TEST_F(Spares, AnUnfitSpareIsTheLast) {
  script(1, 1);
  on(ScriptPrinted{});
  on(StandbyGone{.number = 1, .message = "no torch", .permanent = true});
  later(100'000);
  EXPECT_TRUE(on(TimerFired{AgentTimer::kSpares}).empty());
  EXPECT_LT(emitted<StandbyEnded>().at(0).next_in_s, 0);
  EXPECT_EQ(next_round(), Texts{"round"});
  EXPECT_TRUE(on(ScriptPrinted{}).empty());
}

TEST_F(Spares, NoSparesWithoutTheOption) {
  script(2, 0);
  EXPECT_FALSE(timers_.contains(AgentTimer::kSpares));
  EXPECT_TRUE(on(ScriptPrinted{}).empty());
  EXPECT_EQ(next_round(), Texts{"round"});
}

TEST_F(Spares, LimitsConcurrentLoading) {
  world_ = 4;
  state_.emplace(AgentSettings{.world_size = 4, .restarts = {.max_restarts = 9}, .standbys = 4, .max_loading_spares = 3});
  on(Begin{});
  EXPECT_EQ(on(ScriptPrinted{}), (Texts{"spare 4", "spare 5", "spare 6"}));
  EXPECT_EQ(on(StandbyReady{5}), Texts{"spare 7"});
  EXPECT_TRUE(on(StandbyReady{4}).empty());
  EXPECT_EQ(next_round(), Texts{"round 4 5"});  // spares 6 and 7 are still loading
  EXPECT_EQ(on(ScriptPrinted{}), Texts{"spare 8"});
}

TEST(SpareBookkeeping, ALoadingSpareIsNotTaken) {
  Standbys spares(2, 4, 1);
  EXPECT_EQ(spares.start_missing(after(0)), std::vector<int>{4});
  EXPECT_TRUE(spares.start_missing(after(1)).empty());
  EXPECT_EQ(spares.take_ready(), std::nullopt);
  spares.ready(4, after(2));
  EXPECT_EQ(spares.start_missing(after(3)), std::vector<int>{5});
  EXPECT_EQ(spares.take_ready(), 4);
  EXPECT_EQ(spares.take_ready(), std::nullopt);
}

}  // namespace
}  // namespace ddprun
