// Simulates a few Nodes on a network with a latency of one millisecond. Nodes can join, be cut off, die or have stuck workers.
// The test determines the order of all messages and faults, so no event is random. tests/rendezvous/simulation tests random
// faults.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/node/node.hpp"
#include "rendezvous/node/record_gate.hpp"

namespace ddprun::rendezvous {

using std::chrono::seconds;

class FewNodes {
 public:
  static constexpr milliseconds kLatency{1};

  struct Agent {
    std::optional<Node> node{};
    RecordGate gate{};               // delays messages until the record is written, which takes up to one millisecond
    std::optional<Release> works{};  // the round in which the agent's workers run; nullopt if no worker runs
    bool stuck = false;              // true if the agent's workers do not exit when they are stopped
    coordinator_action::SetDeathNotice death_notice{};
    std::optional<node_action::Finish> finish{};
    std::map<LinkId, std::size_t> links{};
    LinkId accepted = 0;
    nanoseconds not_before{};
  };

  // Creates the agents. All agents search for the job at the address of agent 0.
  FewNodes(int agents, std::int32_t min_nodes, std::int32_t max_nodes, const Rules& rules = {})
      : agents_(static_cast<std::size_t>(agents)), min_(min_nodes), max_(max_nodes), rules_(rules) {}

  Agent& operator[](int number) { return agents_.at(static_cast<std::size_t>(number)); }

  void start(int number) {
    NodeSettings settings;
    settings.member.node = {static_cast<std::uint8_t>(number + 1)};
    settings.member.incarnation = 1;
    settings.member.hostname = "host" + std::to_string(number);
    settings.member.listens = address_of(number);
    settings.member.own_host = settings.member.listens.host;
    settings.member.master_port = 8;
    settings.member.death_notice_port = kDeathNoticePort;
    settings.member.rejoin_for = seconds(300);
    settings.member.rules = rules_;
    if (number > 0) settings.member.endpoints = {address_of(0)};
    settings.coordinator.min_nodes = min_;
    settings.coordinator.max_nodes = max_;
    settings.coordinator.last_call = milliseconds(100);
    settings.coordinator.ready_timeout = seconds(10);
    settings.coordinator.rules = rules_;
    settings.coordinator.judge = [](const FailureReport&, const Budget& before) {
      Verdict verdict{.restart = true, .after = before};
      ++verdict.after.restart_count;
      return verdict;
    };
    settings.leads_first = number == 0;
    (*this)[number].node.emplace(std::move(settings), RestoredState{}, now());
    on(number, node_event::Begin{});
  }

  // ---- Events ----

  void pass(nanoseconds time) {
    const nanoseconds end = at_ + time;
    while (next() <= end) {
      at_ = std::max(at_, next());
      run_next();
    }
    at_ = end;
  }
  // Advances the time in steps of a millisecond until the condition is true. Fails after `at_most`.
  testing::AssertionResult until(const std::function<bool()>& condition, const char* what, nanoseconds at_most = seconds(120)) {
    for (const nanoseconds end = at_ + at_most; at_ < end; pass(milliseconds(1))) {
      if (condition()) return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "timeout while waiting for " << what;
  }
  void cut_off(int number) { cut_.insert(number); }
  void heal(int number) { cut_.erase(number); }
  void worker_fails(int number) {
    FailureReport report;
    report.message = "a worker has failed";
    on(number, node_event::Local{report});
    end_workers(number);
  }
  // Kills the agent. The operating system closes its connections. Its workers exit too, unless they are stuck.
  void kill(int number) {
    Agent& agent = (*this)[number];
    agent.node.reset();
    if (!agent.stuck) agent.works.reset();
    for (const auto& [link, connection] : std::exchange(agent.links, {})) end(connection, number);
  }
  // The host loses power. Messages in flight are lost, and no other node receives the end of a connection.
  void lose_power(int number) {
    cut_off(number);
    kill(number);
  }
  // Simulates the guardian of a killed agent: it has reaped all workers, and sends the death notice.
  void reaped(int number) {
    Agent& agent = (*this)[number];
    agent.works.reset();
    const coordinator_action::SetDeathNotice& notice = agent.death_notice;
    if (notice.to.port != kDeathNoticePort) return;
    const int to = number_of(notice.to.host);
    later([this, to, round = notice.round] { on(to, node_event::DeathNoticeReceived{round}); });
  }

  // ---- State ----

  bool leads(int number) { return (*this)[number].node && (*this)[number].node->coordinator() != nullptr; }
  // Returns true if the workers of this node run in a round that has `nodes` nodes.
  bool works(int number, std::int32_t nodes) { return (*this)[number].works && (*this)[number].works->nodes == nodes; }
  std::int32_t rank_of(int number) { return (*this)[number].works ? (*this)[number].works->group_rank : -1; }

 private:
  static constexpr std::uint16_t kDeathNoticePort = 9;
  struct Connection {
    std::array<int, 2> agent{};  // numbers of the dialing agent and the listening agent
    std::array<LinkId, 2> link{};
    std::array<bool, 2> open{true, true};
  };

  static Address address_of(int number) { return {"10.0.0." + std::to_string(number + 1), 7}; }
  static int number_of(const std::string& host) { return std::stoi(host.substr(host.rfind('.') + 1)) - 1; }
  Now now() const { return {Time(at_), 0}; }
  bool reach(int one, int other) const { return !cut_.contains(one) && !cut_.contains(other); }
  void later(std::function<void()> act) { queue_.emplace(at_ + kLatency, std::move(act)); }

  // Returns when the node needs its next Tick. Ticks are at least one millisecond apart.
  std::optional<nanoseconds> due(const Agent& agent) const {
    const auto deadline = agent.node ? agent.node->next_deadline() : std::nullopt;
    if (!deadline) return std::nullopt;
    return std::max(nanoseconds(deadline->time_since_epoch()), agent.not_before);
  }
  nanoseconds next() const {
    nanoseconds next = queue_.empty() ? nanoseconds::max() : queue_.begin()->first;
    for (const Agent& agent : agents_) next = std::min(next, due(agent).value_or(nanoseconds::max()));
    return next;
  }
  void run_next() {
    if (!queue_.empty() && queue_.begin()->first <= at_) {
      const auto act = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
      return act();
    }
    for (int number = 0; number < static_cast<int>(agents_.size()); ++number) {
      if (due((*this)[number]).value_or(nanoseconds::max()) > at_) continue;
      (*this)[number].not_before = at_ + milliseconds(1);
      on(number, node_event::Tick{});
    }
  }

  void on(int number, const NodeEvent& event) {
    Agent& agent = (*this)[number];
    if (!agent.node) return;
    carry_out_all(number, agent.gate.pass(agent.node->on(event, now())));
    if (agent.node && agent.gate.take_unstarted()) on(number, node_event::Local{member_event::WorkersEnded{}});
  }
  void carry_out_all(int number, std::vector<NodeAction> actions) {
    Agent& agent = (*this)[number];
    for (NodeAction& action : actions) {
      std::visit([&](auto& concrete) { carry_out(number, concrete); }, action);
    }
    if (!agent.finish || !agent.node) return;
    agent.death_notice = {};  // after a normal exit the guardian sends no death notice
    kill(number);
  }
  template <class Action>
  void carry_out(int, const Action&) {}  // ignores the actions that these tests do not need
  void carry_out(int number, const node_action::Dial& dial) {
    later([this, number, dial] { connect(number, dial.link, number_of(dial.address.host)); });
  }
  void carry_out(int number, node_action::ToListener& action) { send(number, action.link, std::move(action.message)); }
  void carry_out(int number, node_action::ToDialler& action) { send(number, action.link, std::move(action.message)); }
  void carry_out(int number, const node_action::CloseLink& close) {
    const auto found = (*this)[number].links.find(close.link);
    if (found == (*this)[number].links.end()) return;
    const std::size_t connection = found->second;
    (*this)[number].links.erase(found);
    end(connection, number);
  }
  void carry_out(int number, const member_action::Remember&) {
    later([this, number] {
      Agent& agent = (*this)[number];
      if (!agent.node) return;
      carry_out_all(number, agent.gate.written(true));
      on(number, node_event::Local{member_event::RecordWritten{}});
    });
  }
  void carry_out(int number, const member_action::StartWorkers& starts) { (*this)[number].works = starts.release; }
  void carry_out(int number, const member_action::StopWorkers&) { end_workers(number); }
  void carry_out(int number, const coordinator_action::SetDeathNotice& notice) { (*this)[number].death_notice = notice; }
  void carry_out(int number, const node_action::Finish& finish) { (*this)[number].finish = finish; }

  void end_workers(int number) {
    later([this, number] {
      Agent& agent = (*this)[number];
      if (agent.stuck || !agent.works) return;
      agent.works.reset();
      on(number, node_event::Local{member_event::WorkersEnded{}});
    });
  }

  // ---- Connections ----

  void connect(int number, LinkId link, int to) {
    Agent& dialler = (*this)[number];
    if (!dialler.node || !reach(number, to)) return;  // the packet is lost without an error
    Agent& listener = (*this)[to];
    if (!listener.node) return on(number, node_event::LinkClosed{.link = link});
    const LinkId accepted = ++listener.accepted;
    dialler.links[link] = listener.links[accepted] = connections_.size();
    connections_.push_back({.agent = {number, to}, .link = {link, accepted}});
    on(to, node_event::LinkOpened{.link = accepted, .local_host = {}});
    on(number,
       node_event::LinkOpened{.link = link, .local_host = address_of(number).host, .own_host = address_of(number).host});
  }
  template <class Message>
  void send(int number, LinkId link, Message message) {
    const auto found = (*this)[number].links.find(link);
    if (found == (*this)[number].links.end()) return;
    later([this, number, connection = found->second, message = std::move(message)] {
      const Connection& over = connections_[connection];
      const std::size_t other = over.agent[0] == number ? 1 : 0;
      if (!over.open[other] || !reach(over.agent[0], over.agent[1])) return;
      if constexpr (std::is_same_v<Message, FromMember>) {
        on(over.agent[other], node_event::FromDialler{over.link[other], message});
      } else {
        on(over.agent[other], node_event::FromListener{over.link[other], message});
      }
    });
  }
  void end(std::size_t connection, int number) {
    const std::size_t mine = connections_[connection].agent[0] == number ? 0 : 1;
    connections_[connection].open[mine] = false;
    later([this, connection, other = 1 - mine] {
      Connection& over = connections_[connection];
      if (!over.open[other] || !reach(over.agent[0], over.agent[1])) return;
      over.open[other] = false;
      (*this)[over.agent[other]].links.erase(over.link[other]);
      on(over.agent[other], node_event::LinkClosed{.link = over.link[other]});
    });
  }

  std::vector<Agent> agents_;
  std::int32_t min_, max_;
  Rules rules_;
  nanoseconds at_ = seconds(1000);
  std::multimap<nanoseconds, std::function<void()>> queue_;
  std::vector<Connection> connections_;
  std::set<int> cut_;
};

}  // namespace ddprun::rendezvous
