// Tests the decisions about connections and agents, event by event.
#include "launcher/hosts/hosts_state.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "common/base/overloaded.hpp"

namespace ddprun {
namespace {

using namespace std::chrono_literals;
using hosts_event::AgentEnded;
using hosts_event::Attached;
using hosts_event::Disconnected;
using hosts_event::Ready;
using hosts_event::Refused;
using hosts_event::Signalled;
using hosts_event::Unknown;

std::string name_of_action(const HostsAction& action) {
  return std::visit(Overloaded{[](const hosts_action::Close& one) { return "close " + std::to_string(one.host); },
                               [](const hosts_action::Connect& one) {
                                 return (one.attach ? "attach " : "connect ") + std::to_string(one.host);
                               },
                               [](const hosts_action::StartAgent& one) { return "start " + std::to_string(one.host); },
                               [](const hosts_action::SendSignal& one) {
                                 return "signal " + std::to_string(one.host) + " " + std::to_string(one.signal);
                               },
                               [](const hosts_action::Print& one) { return one.text; }},
                    action);
}

// Two hosts, a and b, or one host. Messages are collected in `printed`; the other actions are returned as text.
class TestedJob {
 public:
  explicit TestedJob(std::vector<std::string> names = {"a", "b"}) : state({.names = std::move(names)}) {}

  std::string start() { return collected(state.start(now)); }
  std::string on(const HostsEvent& event) { return collected(state.on(event, now)); }
  std::string after(std::chrono::milliseconds time) {
    now += time;
    return collected(state.on_time(now));
  }
  // Starts both agents.
  void run_both() {
    start();
    on(Ready{0, "10.0.0.4", 29400});
    ASSERT_EQ(on(Ready{1, "", 0}), "start 0, start 1");
  }

  HostsState state;
  HostsState::Time now{};
  std::string printed;

 private:
  std::string collected(const std::vector<HostsAction>& actions) {
    std::string text;
    for (const HostsAction& action : actions) {
      if (std::holds_alternative<hosts_action::Print>(action)) {
        printed += name_of_action(action) + "\n";
      } else {
        text += (text.empty() ? "" : ", ") + name_of_action(action);
      }
    }
    return text;
  }
};

TEST(HostsState, NoAgentStartsBeforeAllHostsAreReady) {
  TestedJob run;
  EXPECT_EQ(run.start(), "connect 0, connect 1");
  EXPECT_EQ(run.on(Ready{1, "", 0}), "");
  EXPECT_EQ(run.on(Ready{0, "10.0.0.4", 29400}), "start 0, start 1");
  EXPECT_EQ(run.state.address(), "10.0.0.4");
  EXPECT_EQ(run.state.port(), 29400);
  EXPECT_EQ(run.on(AgentEnded{1, 0}), "");
  EXPECT_FALSE(run.state.finished());
  EXPECT_EQ(run.on(AgentEnded{0, 0}), "");
  EXPECT_TRUE(run.state.finished());
  EXPECT_EQ(run.state.exit_code(), 0);
  EXPECT_EQ(run.printed, "");
}

TEST(HostsState, AMistakeOnOneHostStartsNothing) {
  TestedJob run;
  run.start();
  run.on(Ready{0, "10.0.0.4", 29400});
  EXPECT_EQ(run.on(Disconnected{1, "the login was refused", true}), "close 0, close 1");
  EXPECT_TRUE(run.state.finished());
  EXPECT_EQ(run.state.problem(), "host b: the login was refused");
  EXPECT_EQ(run.state.exit_code(), 2);

  TestedJob refused;
  refused.start();
  EXPECT_EQ(refused.on(Refused{0, "no folder"}), "close 0, close 1");
  EXPECT_EQ(refused.state.problem(), "host a: no folder");
  EXPECT_EQ(refused.state.exit_code(), 2);

  TestedJob unreachable;
  unreachable.start();
  unreachable.on(Disconnected{0, "ssh could not connect", false});
  EXPECT_EQ(unreachable.state.exit_code(), 80);
}

TEST(HostsState, AHostWithoutAnAnswerEndsTheStart) {
  TestedJob run;
  run.start();
  run.on(Ready{0, "10.0.0.4", 29400});
  EXPECT_EQ(run.after(59s), "");
  EXPECT_EQ(run.state.deadline(), run.now + 1s);
  EXPECT_EQ(run.after(1s), "close 0, close 1");
  EXPECT_NE(run.state.problem().find("host b: no answer for 60 s"), std::string::npos);
  EXPECT_EQ(run.state.exit_code(), 80);
}

TEST(HostsState, ASignalBeforeTheStartEndsEverything) {
  TestedJob run;
  run.start();
  EXPECT_EQ(run.on(Signalled{SIGINT}), "close 0, close 1");
  EXPECT_EQ(run.state.exit_code(), 130);
  EXPECT_EQ(run.state.problem(), "");
}

TEST(HostsState, SignalsReachAllAgents) {
  TestedJob run;
  run.run_both();
  EXPECT_EQ(run.on(Signalled{SIGTERM}), "signal 0 15, signal 1 15");
  EXPECT_EQ(run.on(AgentEnded{1, 85}), "");
  EXPECT_EQ(run.on(Signalled{SIGINT}), "signal 0 2");
  run.on(AgentEnded{0, 85});
  EXPECT_EQ(run.state.exit_code(), 85);
}

TEST(HostsState, ALostConnectionIsAttachedAgain) {
  TestedJob run;
  run.run_both();
  EXPECT_EQ(run.on(Disconnected{1, "Broken pipe", false}), "");
  EXPECT_EQ(run.printed,
            "host b: the connection was lost (Broken pipe). The agent continues without it for 120 s, and then saves and ends; "
            "connecting again\n");
  EXPECT_EQ(run.after(500ms), "attach 1");
  EXPECT_EQ(run.on(Disconnected{1, "Connection refused", false}), "");
  EXPECT_EQ(run.after(999ms), "");
  EXPECT_EQ(run.after(1ms), "attach 1");
  EXPECT_EQ(run.on(Signalled{SIGTERM}), "signal 0 15");
  EXPECT_EQ(run.on(Attached{1}), "signal 1 15");
  run.on(AgentEnded{1, 85});
  run.on(AgentEnded{0, 85});
  EXPECT_EQ(run.state.exit_code(), 85);
}

TEST(HostsState, AnAttemptWithoutAnAnswerIsRepeated) {
  TestedJob run;
  run.run_both();
  run.on(Disconnected{1, "x", false});
  run.after(500ms);
  EXPECT_EQ(run.after(60s), "close 1");
  EXPECT_EQ(run.after(1s), "attach 1");
}

// While other agents run, they may wait for this node, so the attempts must continue. The pauses grow up to 16 s.
TEST(HostsState, AttemptsContinueWhileOtherAgentsRun) {
  TestedJob run;
  run.run_both();
  run.on(Disconnected{1, "x", false});
  int attempts = 0;
  const auto end = run.now + 30min;
  while (run.now < end) {
    if (run.after(500ms) != "attach 1") continue;
    ++attempts;
    run.on(Disconnected{1, "x", false});
  }
  EXPECT_GT(attempts, 100);
  EXPECT_LT(attempts, 130);
  EXPECT_FALSE(run.state.finished());
}

TEST(HostsState, TheOnlyHostIsGivenUpAfterItsAgentHasEnded) {
  TestedJob run({"a"});
  run.start();
  run.on(Ready{0, "10.0.0.4", 29400});
  run.on(Disconnected{0, "x", false});
  const auto end = run.now + 10min;
  while (run.now < end && !run.state.finished()) {
    if (run.after(500ms) == "attach 0") run.on(Disconnected{0, "x", false});
  }
  EXPECT_TRUE(run.state.finished());
  EXPECT_EQ(run.state.exit_code(), 80);
  EXPECT_NE(run.printed.find("the result of its agent is unknown"), std::string::npos);
}

TEST(HostsState, AnAgentThatIsGoneIsStartedAgain) {
  TestedJob run;
  run.run_both();
  run.on(Disconnected{1, "x", false});
  run.after(500ms);
  EXPECT_EQ(run.on(Unknown{1}), "close 1, connect 1");
  EXPECT_EQ(run.on(Disconnected{1, "not reachable yet", false}), "");
  EXPECT_EQ(run.after(1s), "connect 1");
  EXPECT_EQ(run.on(Ready{1, "", 0}), "start 1");
  EXPECT_EQ(run.state.address(), "10.0.0.4");
}

TEST(HostsState, AKilledAgentIsStartedAgainWhileOthersRun) {
  TestedJob run;
  run.run_both();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run.on(AgentEnded{1, SIGKILL, true}), "close 1, connect 1");
    EXPECT_EQ(run.on(Ready{1, "", 0}), "start 1");
  }
  EXPECT_EQ(run.on(AgentEnded{1, SIGKILL, true}), "");
  EXPECT_EQ(run.after(60s), "signal 0 15");
  run.on(AgentEnded{0, 85});
  EXPECT_EQ(run.state.exit_code(), 137);
}

TEST(HostsState, ANodeThatWasCutOffIsStartedAgain) {
  TestedJob run;
  run.run_both();
  EXPECT_EQ(run.on(AgentEnded{1, 86}), "close 1, connect 1");
  TestedJob alone({"a"});
  alone.start();
  alone.on(Ready{0, "", 0});
  EXPECT_EQ(alone.on(AgentEnded{0, SIGKILL, true}), "");
  EXPECT_EQ(alone.state.exit_code(), 137);
}

TEST(HostsState, AStoppedJobStartsNoAgentAgain) {
  TestedJob run;
  run.run_both();
  run.on(AgentEnded{1, SIGKILL, true});
  EXPECT_EQ(run.on(Signalled{SIGTERM}), "signal 0 15, close 1");
  run.on(AgentEnded{0, 85});
  EXPECT_TRUE(run.state.finished());
  EXPECT_EQ(run.state.exit_code(), 85);
}

// An agent that refuses its command never joins the job. The other agents would wait for it, so they are stopped.
TEST(HostsState, AnAgentThatRefusesItsCommandStopsTheOthers) {
  TestedJob run;
  run.run_both();
  EXPECT_EQ(run.on(AgentEnded{1, 2}), "signal 0 15");
  EXPECT_EQ(run.printed, "host b: its agent has ended with exit code 2: the agents on the other hosts are stopped\n");
  run.on(AgentEnded{0, 85});
  EXPECT_EQ(run.state.exit_code(), 2);
}

TEST(HostsState, OtherFailuresLeaveTimeForTheOthersToEnd) {
  TestedJob run;
  run.run_both();
  EXPECT_EQ(run.on(AgentEnded{1, 7}), "");
  EXPECT_EQ(run.state.deadline(), run.now + 60s);
  EXPECT_EQ(run.on(AgentEnded{0, 7}), "");
  EXPECT_EQ(run.state.exit_code(), 7);
}

TEST(HostsState, AConsequenceIsNotTheResult) {
  TestedJob run;
  run.run_both();
  run.on(AgentEnded{1, 80});
  run.on(AgentEnded{0, 89});
  EXPECT_EQ(run.state.exit_code(), 89);
}

}  // namespace
}  // namespace ddprun
