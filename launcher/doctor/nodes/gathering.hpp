// Makes the decisions of the first node while `ddprun doctor` runs on all nodes of a job. It decides which nodes take part,
// when the wait for nodes ends, which peers each node tests, and when the comparison can start. meet.cpp executes the actions.
// The code is pure: the inputs are events and the time.
//
// There are two phases, each with a time limit:
//
//   kWaiting   Nodes connect and send their reports. The phase ends after Rules::wait, or earlier if the maximum number of
//              nodes in --nnodes have connected. If the connection of a node ends, the node is removed. It may connect again,
//              for example because Kubernetes restarts an init container after a failure.
//   kTesting   Each node tests the names and ports of some peers. The phase ends when all results have arrived, or after
//              Rules::answer. Further nodes are refused. If the connection of a node ends, the comparison lists the node as
//              incomplete.
//
// Testing all pairs of N nodes takes N² connections. With thousands of nodes the tests would load the network more than the job
// does. So a node tests at most kMaxPeers other nodes. These are the nodes that connected after it, and at the end of the list
// the first ones. With up to 65 nodes, these tests cover each pair in both directions. With more nodes, each node is still
// tested 64 times. A closed port or a wrong name is therefore found, but a fault between two specific nodes may be missed.
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

  Actions start(Time now);  // call this once, before all other events; a job of one node starts the tests immediately
  Actions arrived(Link link, NodeReport report, std::string address, Time now);
  void clock(Link link, const NodeClock& clock);
  Actions answered(Link link, PeerResults results);
  Actions lost(Link link);
  Actions tick(Time now);
  void refused(std::string line);  // the transport has refused a connection
  // Adds a fact that this node learns only after another node has connected. If the fact exists already, its value is kept.
  void add_own_fact(const std::string& name, std::string value) {
    members_.front().report.facts.try_emplace(name, std::move(value));
  }

  Time deadline() const { return deadline_; }  // the time from which tick() has an effect
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
  std::vector<Member> members_;  // this node first, then the others in the order in which they connected
  std::vector<ComparedNode> compared_;
  std::vector<std::string> refused_;
};

}  // namespace ddprun::doctor
