// Simulates two thousand complete agents. Each agent is a rendezvous::Node and an AgentState, connected by the production code
// in translation.cpp. The test decides when workers start, end and fail. The network has no faults and a latency of half a
// millisecond. tests/rendezvous/simulation tests faults of networks, clocks and records.
//
// The agents must start a round together. They must continue when a worker fails and when the coordinator loses power. At the
// end they must exit with the same code.
#include "launcher/network/translation.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent_state/agent_state.hpp"
#include "launcher/restart_policy/job_judge.hpp"
#include "rendezvous/node/node.hpp"

namespace ddprun {
namespace {

using rendezvous::LinkId;
using rendezvous::Node;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
namespace node_event = rendezvous::node_event;
namespace node_action = rendezvous::node_action;
namespace member_action = rendezvous::member_action;

constexpr milliseconds kAgentsLease{5000};
constexpr nanoseconds kLatency{500'000};

class ManyAgents {
 public:
  explicit ManyAgents(int count) : agents_(static_cast<std::size_t>(count)) {
    for (int i = 0; i < count; ++i) {
      one(i).state.emplace(
          AgentSettings{.world_size = 2, .mode = AgentSettings::Mode::kMember, .restarts = {.max_restarts = 3}});
      rendezvous::NodeSettings settings;
      settings.member.node = id_of(i);
      settings.member.incarnation = 1;
      settings.member.hostname = "host" + std::to_string(i);
      settings.member.listens = {std::to_string(i), 1};
      settings.member.local_world_size = 2;
      if (i > 0) settings.member.endpoints = {{"0", 1}};
      settings.leads_first = i == 0;
      settings.coordinator.min_nodes = count - 1;
      settings.coordinator.max_nodes = count;
      settings.coordinator.judge = [](const rendezvous::FailureReport& first, const rendezvous::Budget& before) {
        return judge(first, before, RestartLimits{.max_restarts = 3});
      };
      one(i).node = std::make_unique<Node>(std::move(settings), rendezvous::RestoredState{}, now());
      feed(i, agent_event::Begin{});
      to_node(i, node_event::Begin{});
    }
  }

  bool run_until(const std::function<bool()>& there, milliseconds limit) {
    const nanoseconds end = time_ + limit;
    while (!there()) {
      if (events_.empty() || events_.top().time > end) return false;
      const Due due = events_.top();
      events_.pop();
      time_ = due.time;
      ++handled_;
      due.what();
    }
    return true;
  }
  // Returns true if `nodes` nodes run all of their workers in the same round.
  bool all_work(int nodes) const { return working_ == nodes * 2 && rounds_at_work().size() == 1; }
  bool all_ended() const { return ended_ == std::ssize(agents_) - lost_; }

  int leader() const {
    for (int i = 0; i < std::ssize(agents_); ++i) {
      if (one(i).node && one(i).node->coordinator() != nullptr) return i;
    }
    return -1;
  }
  // Removes a node that sends no final message, like a node whose power fails.
  void cut_power(int index) {
    Simulated& agent = one(index);
    working_ -= static_cast<int>(agent.workers.size());
    agent.node.reset();
    agent.workers.clear();
    ++lost_;
  }
  void fail_worker_of(int index) { end_worker(index, 0, {.code = 7, .signal = 0}); }
  void all_finish() {
    for (int i = 0; i < std::ssize(agents_); ++i) {
      for (const int rank : {0, 1}) end_worker(i, rank, {});
    }
  }
  std::set<int> exit_codes() const { return exit_codes_; }
  std::set<int> restart_counts() const { return restart_counts_; }
  double seconds() const { return std::chrono::duration<double>(time_).count(); }
  std::int64_t handled() const { return handled_; }

 private:
  struct Simulated {
    std::unique_ptr<Node> node;
    std::optional<AgentState> state;
    std::set<int> workers{};  // local ranks of the agent's running workers
    int round = -1;
    std::uint64_t starts = 0;  // number of rounds in which the agent has started workers
    std::map<AgentTimer, std::uint64_t> timers{};
    std::uint64_t next_timer = 0;
    std::uint64_t tick = 0;
    std::map<LinkId, std::pair<int, LinkId>> links{};  // for each connection: the agent and the link at the other end
    LinkId next_accepted = 1;
    bool ended = false;
  };
  struct Due {
    nanoseconds time{};
    std::uint64_t order = 0;
    std::function<void()> what{};
    bool operator>(const Due& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
  };

  static rendezvous::NodeId id_of(int index) {
    return {static_cast<std::uint8_t>(index % 251), static_cast<std::uint8_t>(index / 251), 1};
  }
  Simulated& one(int index) { return agents_[static_cast<std::size_t>(index)]; }
  const Simulated& one(int index) const { return agents_[static_cast<std::size_t>(index)]; }
  rendezvous::Now now() const { return {rendezvous::Time(std::chrono::seconds(1000) + time_), time_.count()}; }
  Instant instant() const { return {std::chrono::steady_clock::time_point(std::chrono::seconds(1000) + time_), time_.count()}; }
  void later(nanoseconds after, std::function<void()> what) { events_.push({time_ + after, order_++, std::move(what)}); }
  std::set<int> rounds_at_work() const {
    std::set<int> rounds;
    for (const Simulated& agent : agents_) {
      if (!agent.workers.empty()) rounds.insert(agent.round);
    }
    return rounds;
  }

  // ---- actions of the agent's state machine ----
  void feed(int index, const AgentEvent& event) {
    Simulated& agent = one(index);
    if (agent.ended) return;
    for (const AgentAction& action : agent.state->on(event, instant())) {
      std::visit([&](const auto& concrete) { do_for_agent(index, concrete); }, action);
    }
  }
  void do_for_agent(int index, const agent_action::StartRound& action) {
    one(index).round = action.round;
    for (const int rank : {0, 1}) start_worker(index, rank);
  }
  void do_for_agent(int index, const agent_action::StartWorker& action) { start_worker(index, action.rank); }
  void do_for_agent(int index, const agent_action::SendSignal& action) {
    for (const int rank : action.ranks) {
      later(milliseconds(2),
            [this, index, rank, signal = action.signal] { end_worker(index, rank, {.code = 0, .signal = signal}); });
    }
  }
  void do_for_agent(int index, const agent_action::Sweep&) {
    later(milliseconds(1), [this, index] {
      const std::set<int> left = one(index).workers;
      for (const int rank : left) end_worker(index, rank, {.code = 0, .signal = SIGKILL});
      if (one(index).node) feed(index, agent_event::RoundSwept{});
    });
  }
  void do_for_agent(int index, const agent_action::SetTimer& action) {
    const std::uint64_t number = one(index).timers[action.timer] = ++one(index).next_timer;
    later(action.after, [this, index, number, timer = action.timer] {
      const auto armed = one(index).timers.find(timer);
      if (!one(index).node || armed == one(index).timers.end() || armed->second != number) return;
      one(index).timers.erase(armed);
      feed(index, agent_event::TimerFired{timer});
    });
  }
  void do_for_agent(int index, const agent_action::CancelTimer& action) { one(index).timers.erase(action.timer); }
  void do_for_agent(int index, const agent_action::ReportFailure& action) { to_member_of(index, to_member(action)); }
  void do_for_agent(int index, const agent_action::ReportRoundOver& action) { to_member_of(index, to_member(action, 2000)); }
  void do_for_agent(int index, const agent_action::ReportSignal& action) { to_member_of(index, to_member(action)); }
  void do_for_agent(int index, const agent_action::ReportSteps& action) { to_member_of(index, to_member(action)); }
  void do_for_agent(int index, const agent_action::Finish& action) {
    one(index).ended = true;
    ++ended_;
    exit_codes_.insert(action.exit_code);
  }
  template <class Other>
  void do_for_agent(int, const Other&) {}

  void start_worker(int index, int rank) {
    EXPECT_TRUE(one(index).workers.insert(rank).second) << "agent " << index << " starts rank " << rank << " twice";
    ++one(index).starts;
    ++working_;
    EXPECT_LE(rounds_at_work_cheaply(index), 1) << "two rounds at the same time";
  }
  // Compares only the round of this agent with the round of the first agent, which takes constant time. If each start compared
  // all agents, the test would take quadratic time.
  int rounds_at_work_cheaply(int index) const {
    const Simulated& first = agents_.front();
    return !first.workers.empty() && first.round > one(index).round ? 2 : 1;
  }
  void end_worker(int index, int rank, ExitStatus status) {
    if (one(index).workers.erase(rank) == 0) return;
    --working_;
    feed(index, agent_event::WorkerExited{.rank = rank, .pid = 100 + rank, .status = status, .time_ns = time_.count()});
  }

  // ---- actions of the node ----
  void to_member_of(int index, rendezvous::MemberEvent event) {
    later(nanoseconds(0), [this, index, event = std::move(event)] { to_node(index, node_event::Local{event}); });
  }
  void to_node(int index, const rendezvous::NodeEvent& event) {
    if (!one(index).node) return;
    for (rendezvous::NodeAction& action : one(index).node->on(event, now())) {
      std::visit([&](auto& concrete) { do_for_node(index, concrete); }, action);
    }
    set_tick(index);
  }
  void set_tick(int index) {
    const auto deadline = one(index).node->next_deadline();
    if (!deadline) return;
    const std::uint64_t number = ++one(index).tick;
    later(std::max(nanoseconds(1), *deadline - now().steady), [this, index, number] {
      if (one(index).tick == number) to_node(index, node_event::Tick{});
    });
  }
  void do_for_node(int index, const node_action::Dial& action) {
    const int to = std::stoi(action.address.host);
    later(kLatency, [this, index, to, link = action.link] {
      if (!one(to).node) {  // the node has lost power, so it never answers
        return later(std::chrono::seconds(2), [this, index, link] { to_node(index, node_event::LinkClosed{link, true}); });
      }
      const LinkId accepted = one(to).next_accepted++;
      one(to).links[accepted] = {index, link};
      one(index).links[link] = {to, accepted};
      to_node(to, node_event::LinkOpened{accepted, {}});
      to_node(index, node_event::LinkOpened{link, std::to_string(index)});
    });
  }
  template <class Event, class Message>
  void send(int index, LinkId link, Message message) {
    const auto found = one(index).links.find(link);
    if (found == one(index).links.end()) return;
    later(kLatency, [this, other = found->second, message = std::move(message)] {
      if (one(other.first).links.contains(other.second)) to_node(other.first, Event{other.second, message});
    });
  }
  void do_for_node(int index, node_action::ToDialler& action) {
    send<node_event::FromListener>(index, action.link, std::move(action.message));
  }
  void do_for_node(int index, node_action::ToListener& action) {
    send<node_event::FromDialler>(index, action.link, std::move(action.message));
  }
  void do_for_node(int index, const node_action::CloseLink& action) {
    const auto found = one(index).links.find(action.link);
    if (found == one(index).links.end()) return;
    const auto other = found->second;
    one(index).links.erase(found);
    later(kLatency, [this, other] {
      if (one(other.first).links.erase(other.second) > 0) to_node(other.first, node_event::LinkClosed{other.second});
    });
  }
  void do_for_node(int index, const member_action::StartWorkers& action) {
    restart_counts_.insert(action.release.budget.restart_count);
    later_to_agent(index, to_agent(action.release));
  }
  void do_for_node(int index, const member_action::StopWorkers& action) { later_to_agent(index, to_agent(action, 4)); }
  void do_for_node(int index, const member_action::DismissHeld& action) { later_to_agent(index, to_agent(action)); }
  void do_for_node(int index, const rendezvous::StopAndSave& action) { later_to_agent(index, to_agent(action)); }
  void do_for_node(int index, const rendezvous::StopAt& action) { later_to_agent(index, to_agent(action)); }
  void do_for_node(int index, const node_action::Finish& action) {
    later_to_agent(index, agent_event::JobEnded{action.exit_code, action.why});
  }
  template <class Other>
  void do_for_node(int, const Other&) {}
  void later_to_agent(int index, AgentEvent event) {
    later(nanoseconds(0), [this, index, event = std::move(event)] {
      if (one(index).node) feed(index, event);
    });
  }

  std::vector<Simulated> agents_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> events_;
  nanoseconds time_{};
  std::uint64_t order_ = 0;
  std::int64_t handled_ = 0;
  int working_ = 0;  // running workers
  int ended_ = 0;
  int lost_ = 0;
  std::set<int> exit_codes_;
  std::set<int> restart_counts_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kAgents = 30;
#else
constexpr int kAgents = 2000;
#endif

TEST(SimulatedAgents, ManyNodesSurviveLossOfWorkerAndCoordinator) {
  ManyAgents job(kAgents);
  ASSERT_TRUE(job.run_until([&] { return job.all_work(kAgents); }, milliseconds(10000)));
  EXPECT_EQ(job.restart_counts(), (std::set<int>{0}));

  job.fail_worker_of(kAgents / 2);
  EXPECT_FALSE(job.all_work(kAgents));
  ASSERT_TRUE(job.run_until([&] { return job.all_work(kAgents); }, milliseconds(5000)));
  EXPECT_EQ(job.restart_counts(), (std::set<int>{0, 1}));

  ASSERT_EQ(job.leader(), 0);
  const double lost = job.seconds();
  job.cut_power(0);
  ASSERT_TRUE(job.run_until([&] { return job.leader() > 0 && job.all_work(kAgents - 1); }, kAgentsLease + milliseconds(15000)));
  const double again = job.seconds() - lost - 5;
  EXPECT_LT(again, 15);
  EXPECT_EQ(job.restart_counts(), (std::set<int>{0, 1}));  // the loss of a node does not use the restart budget

  job.all_finish();
  ASSERT_TRUE(job.run_until([&] { return job.all_ended(); }, milliseconds(10000)));
  EXPECT_EQ(job.exit_codes(), (std::set<int>{0}));
  std::printf("%d agents: at work again %.2f s after the lease of their coordinator; %.0f events of each\n", kAgents, again,
              static_cast<double>(job.handled()) / kAgents);
}

}  // namespace
}  // namespace ddprun
