// The first node's decisions while the doctors of a job meet: which nodes take part, when the wait ends, which peers each node
// tests, and when the comparison can start. meet.cpp carries out the actions. Pure: the inputs are events and the time.
//
// The meeting has two phases, each with a limit:
//
//   kWaiting   Nodes send their reports. The phase ends when --nnodes (its maximum) came, or after Rules::wait. A node whose
//              connection ends is forgotten, and it may come again: an init container is restarted after a failure.
//   kTesting   Each node tests the names and ports of some peers. The phase ends when all results are present, or after
//              Rules::answer. No node can join any more. A node whose connection ends stays in the comparison as incomplete.
//
// Testing all pairs of N nodes takes N² connections. With thousands of nodes the tests would load the network more than the job
// does. So a node tests at most kMaxPeers others, those that follow it in the order of arrival, as on a ring. With up to 65
// nodes, that covers each pair in both directions. With more nodes, each node is still tested 64 times, so a closed port or a
// wrong name is found, but a fault between two certain nodes may not be.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/doctor/nodes/compare_nodes.hpp"
#include "launcher/doctor/nodes/node_report.hpp"

namespace ddprun::doctor {

class Gathering {
 public:
  using Link = std::uint64_t;  // a connection to a node; never kSelf
  using Time = std::chrono::milliseconds;
  static constexpr Link kSelf = 0;
  static constexpr std::size_t kMaxPeers = 64;

  struct Rules {
    int min_nodes = 1;
    int max_nodes = 1;
    Time wait{60'000};
    Time answer{10'000};
  };

  struct SendClockQuery {
    Link link = 0;
  };
  // Also sent to kSelf: the first node tests its peers too. An empty NodePeer::address stands for the first node itself.
  struct SendPeers {
    Link link = 0;
    PeerList list{};
  };
  struct Refuse {
    Link link = 0;
    std::string why{};
  };
  struct Conclude {};  // compare now: nodes() and attendance() are final
  using Action = std::variant<SendClockQuery, SendPeers, Refuse, Conclude>;
  using Actions = std::vector<Action>;

  Gathering(NodeReport own, const Rules& rules, Time now);

  Actions start(Time now);  // call this once, before all other events: a job of one node is complete at the start
  Actions arrived(Link link, NodeReport report, std::string address, Time now);
  void clock(Link link, const NodeClock& clock);
  Actions answered(Link link, PeerResults results);
  Actions lost(Link link);
  Actions tick(Time now);
  void refused(std::string line);  // the transport has refused a connection
  // Adds a fact about this node that it knows only after another one has connected. The first value is kept.
  void add_own_fact(const std::string& name, std::string value) {
    members_.front().report.facts.try_emplace(name, std::move(value));
  }

  Time deadline() const { return deadline_; }  // when tick() has an effect
  const std::vector<ComparedNode>& nodes() const { return compared_; }
  const Checks& checks_of(std::size_t node) const { return members_[node].report.checks; }
  Attendance attendance() const;

 private:
  enum class Phase { kWaiting, kTesting, kDone };
  struct Member {
    Link link = 0;
    NodeReport report{};
    std::string address{};
    std::optional<NodeClock> clock{};
    PeerResults results{};
    bool has_answered = false;
    bool is_lost = false;
  };

  Member* member(Link link);
  Actions test_peers(Time now);
  PeerList peers_of(std::size_t node) const;
  Actions conclude_if_complete();
  Actions conclude();

  Rules rules_;
  Phase phase_ = Phase::kWaiting;
  Time started_;
  Time waited_{};
  Time deadline_;
  std::vector<Member> members_;  // this node first, then in the order of arrival
  std::vector<ComparedNode> compared_;
  std::vector<std::string> refused_;
};

}  // namespace ddprun::doctor
