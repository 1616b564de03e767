// The messages between the `ddprun doctor` processes on the nodes of a job, as JSON objects in the frames of the transport.
//
//   node -> first node   NodeReport      after the connection: its checks and its facts
//   first node -> node   ClockQuery      immediately after the report
//   node -> first node   ClockReading
//   first node -> node   PeerList        when all nodes have connected, or the time is over
//   node -> first node   PeerResults     the names and connections of these peers
//   first node -> node   GroupResult     the verdict on the whole job; or NodeRefusal, at any time
//
// The transport has authenticated the sender with the job's token. A decoder still limits the number and the length of all
// values, because the other node may run another version. It ignores unknown keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/doctor/verdicts/check.hpp"
#include "launcher/doctor/verdicts/node_facts.hpp"

namespace ddprun::doctor {

struct NodeReport {
  std::string host{};         // the host name
  std::optional<int> rank{};  // --node-rank; nullopt if it is not given
  NodeFacts facts{};
  Checks checks{};
  std::uint16_t port = 0;  // a port at which this node accepts connections of its peers; 0 if it has none
};

struct ClockQuery {};
struct ClockReading {
  std::int64_t time_ns = 0;  // CLOCK_REALTIME of the node
};

struct NodePeer {
  int id = 0;  // the first node's number for this peer
  std::string host{};
  std::string address{};
  std::uint16_t port = 0;
};
struct PeerList {
  std::vector<NodePeer> peers{};
};

struct PeerResult {
  int id = 0;
  std::vector<std::string> addresses{};  // addresses of the peer's host name
  std::string name_problem{};            // why the name has no address; empty if it has one
  std::string connect_problem{};         // why the connection failed; empty if it was opened
};
struct PeerResults {
  std::vector<PeerResult> results{};
};

struct GroupResult {
  int errors = 0;  // number of errors on all nodes together
  int warnings = 0;
  std::string host{};  // the host name of the first node, whose doctor prints the tables
};
struct NodeRefusal {
  std::string why{};
};

using NodeMessage = std::variant<NodeReport, ClockQuery, ClockReading, PeerList, PeerResults, GroupResult, NodeRefusal>;

std::string encode(const NodeMessage& message);
// Returns nullopt if the text is not a message.
std::optional<NodeMessage> decode(std::string_view text);

}  // namespace ddprun::doctor
