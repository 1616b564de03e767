// Tests standby workers: the bookkeeping in standbys.hpp, and when the agent's state machine starts, uses and kills standbys.
// Random tests cover unusual orders of events.
#include "launcher/agent_state/standbys.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "launcher/agent_state/agent_state.hpp"
#include "launcher/events/event_json.hpp"
#include "tests/launcher/agent_state/driven_agent.hpp"

namespace ddprun {
namespace {

using namespace agent_event;  // NOLINT: the test reads as a script
using std::chrono::milliseconds;
using Texts = std::vector<std::string>;

constexpr auto at(int ms) {
  return Standbys::Clock::time_point{} + milliseconds(ms);
}

TEST(Standbys, AreNumberedAboveTheRanks) {
  Standbys standbys(2, 4);
  EXPECT_EQ(standbys.start_missing(at(0)), (std::vector<int>{4, 5}));
  EXPECT_TRUE(standbys.start_missing(at(0)).empty());
  EXPECT_FALSE(Standbys(0, 4).wanted());
  EXPECT_TRUE(Standbys(0, 4).start_missing(at(0)).empty());
}

TEST(Standbys, AReadyStandbyIsTakenFirst) {
  Standbys standbys(3, 2);
  standbys.start_missing(at(0));
  standbys.ready(4, at(500));
  EXPECT_EQ(standbys.take(), 4);
  EXPECT_EQ(standbys.take(), 2);  // standbys 2 and 3 are still loading; number 2 was started first
  EXPECT_EQ(standbys.take(), 3);
  EXPECT_EQ(standbys.take(), std::nullopt);
}

TEST(Standbys, NumbersAreReused) {
  Standbys standbys(1, 2);
  standbys.start_missing(at(0));
  EXPECT_EQ(standbys.take(), 2);
  EXPECT_EQ(standbys.start_missing(at(1)), std::vector<int>{3});
  standbys.release(2);
  EXPECT_EQ(standbys.take(), 3);
  EXPECT_EQ(standbys.start_missing(at(2)), std::vector<int>{2});
}

TEST(Standbys, ReplacementPausesDoubleUpToAMinute) {
  Standbys standbys(1, 2);
  int time = 0;
  for (const int pause : {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000}) {
    ASSERT_EQ(standbys.start_missing(at(time)), std::vector<int>{2});
    standbys.ready(2, at(time));
    EXPECT_EQ(standbys.gone(2, at(time)), milliseconds(pause));
    EXPECT_TRUE(standbys.start_missing(at(time + pause - 1)).empty());
    time += pause;
  }
  ASSERT_EQ(standbys.start_missing(at(time)), std::vector<int>{2});
  standbys.ready(2, at(time));
  // The standby had waited for a minute before it ended, so this is not a crash loop.
  EXPECT_EQ(standbys.gone(2, at(time + 60000)), milliseconds(1000));
}

TEST(Standbys, AUsedStandbyResetsThePause) {
  Standbys standbys(1, 2);
  standbys.start_missing(at(0));
  EXPECT_EQ(standbys.gone(2, at(0)), milliseconds(1000));
  standbys.start_missing(at(1000));
  standbys.ready(2, at(1500));
  EXPECT_EQ(standbys.take(), 2);
  standbys.start_missing(at(2000));
  EXPECT_EQ(standbys.gone(3, at(3000)), milliseconds(1000));
}

TEST(Standbys, EventsOfUnknownNumbersAreIgnored) {
  Standbys standbys(1, 2);
  standbys.start_missing(at(0));
  EXPECT_EQ(standbys.take(), 2);
  EXPECT_EQ(standbys.gone(2, at(1)), std::nullopt);  // standby 2 has already become a worker
  standbys.ready(2, at(1));
  EXPECT_EQ(standbys.take(), std::nullopt);
}

std::string text_with_standbys(const AgentAction& action) {
  using std::to_string;
  if (const auto* a = std::get_if<agent_action::StartRound>(&action)) return "start all " + to_string(a->restart_count);
  if (const auto* a = std::get_if<agent_action::StartWorker>(&action)) return "start " + to_string(a->rank);
  if (const auto* a = std::get_if<agent_action::StartStandby>(&action)) return "standby " + to_string(a->number);
  if (const auto* a = std::get_if<agent_action::TakeOver>(&action)) {
    return to_string(a->standby) + " takes over " + to_string(a->rank) + " restarts " + to_string(a->restart_count);
  }
  if (std::holds_alternative<agent_action::DismissStandbys>(action)) return "dismiss";
  if (const auto* a = std::get_if<agent_action::SendMessage>(&action)) {
    return std::holds_alternative<channel::Regroup>(a->message) ? "regroup" : "";
  }
  if (std::holds_alternative<agent_action::Sweep>(action)) return "sweep";
  if (const auto* a = std::get_if<agent_action::Finish>(&action)) return "finish " + to_string(a->exit_code);
  return "";
}

class AgentWithStandbys : public test::DrivenAgent {
 protected:
  AgentWithStandbys() : DrivenAgent(text_with_standbys) {}

  void job(int world, int standbys, int max_restarts = 3) {
    begin(world, max_restarts, standbys);
    on(WorkerMessageReceived{0, channel::Regroupable{}});
    for (int rank = 0; rank < world; ++rank) on(WorkerMessageReceived{rank, channel::Hello{}});
  }
  // Reports that all workers of the round have joined the process group at `step`.
  void form_group(int generation, std::int64_t step) {
    for (int rank = 0; rank < world_; ++rank) on(WorkerMessageReceived{rank, channel::GroupFormed{generation, step}});
  }
  Texts finishes(std::int64_t step) { return on(WorkerMessageReceived{0, channel::Progress{.step = step}}); }
  Texts standby_dies(int number) { return on(StandbyGone{number, 200 + number, ExitStatus{.signal = SIGKILL}, "why", 0}); }
};

TEST_F(AgentWithStandbys, StartsStandbysAfterTheFirstStep) {
  job(2, 2);
  EXPECT_EQ(finishes(0), Texts{});
  form_group(0, 0);
  EXPECT_EQ(finishes(0), Texts{});
  EXPECT_EQ(finishes(1), (Texts{"standby 2", "standby 3"}));
  EXPECT_EQ(finishes(2), Texts{});
}

TEST_F(AgentWithStandbys, AStepBeforeTheGroupIsCompleteCounts) {
  job(2, 1);
  on(WorkerMessageReceived{0, channel::GroupFormed{0, 0}});
  EXPECT_EQ(finishes(1), Texts{});
  EXPECT_EQ(on(WorkerMessageReceived{1, channel::GroupFormed{0, 0}}), Texts{"standby 2"});
}

TEST_F(AgentWithStandbys, AStandbyTakesOverAndIsReplaced) {
  job(3, 1);
  form_group(0, 0);
  EXPECT_EQ(finishes(40), Texts{"standby 3"});
  on(StandbyReady{3});
  EXPECT_EQ(dies(1), (Texts{"regroup", "3 takes over 1 restarts 1"}));
  for (const int rank : {0, 2}) on(WorkerMessageReceived{rank, channel::RegroupReady{1, 40}});
  EXPECT_EQ(finishes(40), Texts{});
  form_group(1, 40);
  EXPECT_EQ(finishes(41), Texts{"standby 4"});
  const Regrouped done = emitted<Regrouped>().back();
  EXPECT_EQ(done.replaced, std::vector<int>{1});
  EXPECT_EQ(done.by_standby, std::vector<int>{1});
}

TEST_F(AgentWithStandbys, WithoutAStandbyAWorkerIsStarted) {
  job(3, 1);
  form_group(0, 0);
  finishes(1);
  EXPECT_EQ(dies(1),
            // Standby 3 is still loading, but a new process would take longer.
            (Texts{"regroup", "3 takes over 1 restarts 1"}));
  EXPECT_EQ(dies(2), Texts{"start 2"});
  on(WorkerMessageReceived{0, channel::RegroupReady{1, 1}});
  form_group(1, 1);
  EXPECT_EQ(emitted<Regrouped>().back().replaced, (std::vector<int>{1, 2}));
  EXPECT_EQ(emitted<Regrouped>().back().by_standby, std::vector<int>{1});
}

TEST_F(AgentWithStandbys, AnEndedStandbyIsNotAFailure) {
  job(2, 1, 1);
  form_group(0, 0);
  finishes(1);
  for (int loss = 0; loss < 5; ++loss) {
    EXPECT_EQ(standby_dies(2), Texts{});
    EXPECT_EQ(finishes(2), Texts{});
    later(60000);
    EXPECT_EQ(finishes(3), Texts{"standby 2"});
  }
  EXPECT_TRUE(emitted<RoundFailed>().empty());
  const auto ended = emitted<StandbyEnded>();
  ASSERT_EQ(ended.size(), 5U);
  EXPECT_EQ(ended.front().next_in_s, 1);
  EXPECT_EQ(ended.back().next_in_s, 16);
  EXPECT_EQ(
      event_json_line(RunEvent{ended.front()}),
      "{\"event\":\"standby_ended\",\"time_ns\":0,\"pid\":202,\"signal\":9,\"signal_name\":\"SIGKILL\",\"message\":\"why\","
      "\"next_in_s\":1.0}\n");
}

TEST_F(AgentWithStandbys, ADeadStandbyUsesNoRestart) {
  job(2, 1, 1);
  form_group(0, 0);
  finishes(5);
  EXPECT_EQ(dies(1), (Texts{"regroup", "2 takes over 1 restarts 1"}));
  EXPECT_EQ(on(WorkerMessageReceived{1, channel::Hello{}}), Texts{});  // standby 2 sent this message before it was killed
  EXPECT_EQ(dies(1), Texts{"start 1"});
  on(WorkerMessageReceived{0, channel::RegroupReady{1, 5}});
  form_group(1, 5);
  EXPECT_TRUE(emitted<Regrouped>().back().by_standby.empty());
  EXPECT_EQ(emitted<RoundFailed>().size(), 1U);
  EXPECT_EQ(finishes(6), Texts{"standby 2"});
}

TEST_F(AgentWithStandbys, AStandbyThatDiesAsAWorkerIsALoss) {
  job(2, 1);
  form_group(0, 0);
  finishes(5);
  later(5000);
  dies(1);
  on(WorkerMessageReceived{1, channel::PhaseChange{.phase = channel::Phase::kJoining}});
  // Step 7 is newer than step 5. So the next loss counts as a different failure.
  on(WorkerMessageReceived{0, channel::RegroupReady{1, 7}});
  EXPECT_EQ(dies(1), (Texts{"regroup", "start 1"}));
  EXPECT_EQ(emitted<RoundFailed>().size(), 2U);
}

TEST_F(AgentWithStandbys, StandbysEndWithTheRound) {
  const auto with_one = [this] {
    job(2, 1);
    form_group(0, 0);
    ASSERT_EQ(finishes(1), Texts{"standby 2"});
  };
  with_one();
  on(WorkerExited{0, 100, {}, 0});
  EXPECT_EQ(on(WorkerExited{1, 101, {}, 0}), (Texts{"dismiss", "sweep"}));  // the job has succeeded

  with_one();
  EXPECT_EQ(on(SignalArrived{SIGTERM}), Texts{"dismiss"});  // the workers save and then exit
  EXPECT_EQ(finishes(2), Texts{});

  with_one();
  on(SignalArrived{SIGINT});
  on(SignalArrived{SIGINT});
  dies(0);
  EXPECT_EQ(dies(1), Texts{"sweep"});
  EXPECT_EQ(standby_dies(2), Texts{});

  with_one();
  channel::WorkerError error;
  error.kind = channel::ErrorKind::kDiverged;
  on(WorkerMessageReceived{1, error});
  EXPECT_EQ(on(WorkerExited{1, 101, {.code = 86}, 0}), Texts{"dismiss"});  // a new worker would diverge again
}

TEST_F(AgentWithStandbys, ANewRoundHasItsOwnStandbys) {
  job(2, 1);
  form_group(0, 0);
  finishes(1);
  dies(1);
  EXPECT_EQ(on(TimerFired{AgentTimer::kRegroup}), Texts{});  // the standby was already used, so no standby is left
  dies(0, SIGTERM);
  EXPECT_EQ(dies(1, SIGTERM), Texts{"sweep"});
  EXPECT_EQ(on(RoundSwept{}), Texts{"start all 1"});
  EXPECT_EQ(finishes(1), Texts{});
  form_group(1, 1);
  EXPECT_EQ(finishes(2), Texts{"standby 2"});
}

TEST_F(AgentWithStandbys, NoStandbysWithoutRegroupableWorkers) {
  job(2, 1);
  state_.emplace(
      AgentSettings{.world_size = 2, .workers_have_channel = true, .regroup_limit = milliseconds(60000), .standbys = 1});
  on(Begin{});
  form_group(0, 0);
  EXPECT_EQ(finishes(1), Texts{});  // workers with NCCL do not report that they can regroup
}

// For any order of events, two processes never have the same number, and a rank never has two workers. No standby waits while
// the processes of a round are being killed.
TEST_F(AgentWithStandbys, AnyEventOrderKeepsProcessesDistinct) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 chance(seed);
    const auto below = [&](int n) { return static_cast<int>(chance() % static_cast<unsigned>(n)); };
    events_.clear();
    timers_.clear();
    job(2 + below(3), 1 + below(3), 1 + below(5));
    std::map<int, int> number_of;  // process number of each running worker, by rank
    std::set<int> waiting;
    for (int rank = 0; rank < world_; ++rank) number_of[rank] = rank;
    bool sweeping = false, finished = false;
    int generation = 0;
    std::int64_t step = 0;
    const auto in_use = [&](int number) {
      return waiting.contains(number) ||
             std::any_of(number_of.begin(), number_of.end(), [&](const auto& one) { return one.second == number; });
    };
    const auto carry_out = [&](const Texts& lines) {
      for (const std::string& line : lines) {
        if (line.starts_with("start all")) {
          EXPECT_TRUE(number_of.empty() && waiting.empty()) << "seed " << seed;
          for (int rank = 0; rank < world_; ++rank) number_of[rank] = rank;
          generation = std::stoi(line.substr(10));
        } else if (line.starts_with("start ")) {
          const int rank = std::stoi(line.substr(6));
          EXPECT_FALSE(number_of.contains(rank) || in_use(rank)) << "seed " << seed;
          number_of[rank] = rank;
        } else if (line.starts_with("standby ")) {
          const int number = std::stoi(line.substr(8));
          EXPECT_FALSE(in_use(number)) << "seed " << seed;
          EXPECT_GE(number, world_);
          waiting.insert(number);
        } else if (const auto takes = line.find(" takes over "); takes != std::string::npos) {
          const int number = std::stoi(line), rank = std::stoi(line.substr(takes + 12));
          EXPECT_EQ(waiting.erase(number), 1U) << "seed " << seed;
          EXPECT_TRUE(number_of.emplace(rank, number).second) << "seed " << seed;
        } else if (line == "dismiss") {
          waiting.clear();
        } else if (line == "regroup") {
          ++generation;
        } else if (line == "sweep") {
          EXPECT_TRUE(number_of.empty() && waiting.empty()) << "seed " << seed;
          sweeping = true;
        } else if (line.starts_with("finish")) {
          finished = true;
        }
      }
    };
    for (int turn = 0; turn < 600 && !finished; ++turn) {
      const int rank = below(world_);
      const bool late = turn > 200;  // later, events mostly end workers, so that the random test terminates
      if (std::exchange(sweeping, false)) {
        carry_out(on(RoundSwept{}));
      } else if (!timers_.empty() && below(late ? 2 : 20) == 0) {
        const AgentTimer timer = timers_.begin()->first;
        timers_.erase(timer);
        carry_out(on(TimerFired{timer}));
      } else if (late && below(8) == 0) {
        carry_out(on(SignalArrived{below(2) == 0 ? SIGTERM : SIGINT}));
      } else if (!waiting.empty() && below(6) == 0) {
        const int number = *waiting.begin();
        if (below(2) == 0) {
          carry_out(on(StandbyReady{number}));
        } else {
          waiting.erase(number);
          carry_out(standby_dies(number));
        }
      } else if (number_of.contains(rank)) {
        switch (below(late ? 2 : 12)) {
          case 0:
            number_of.erase(rank);
            carry_out(dies(rank));
            break;
          case 1:
            if (below(late ? 1 : 10) != 0) break;
            number_of.erase(rank);
            carry_out(on(WorkerExited{rank, 100 + rank, {}, now_.realtime_ns}));
            break;
          case 2:
            later(below(3000));
            carry_out(on(WorkerMessageReceived{rank, channel::RegroupReady{generation, step}}));
            break;
          case 3:
          case 4:
          case 5:
            carry_out(finishes(++step));
            break;
          default:
            carry_out(on(WorkerMessageReceived{rank, channel::GroupFormed{generation, step}}));
        }
      }
    }
    EXPECT_TRUE(finished) << "seed " << seed;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ddprun
