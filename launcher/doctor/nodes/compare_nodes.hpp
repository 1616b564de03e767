// Compares the nodes of a job after they have connected to the first node. The result shows which nodes have connected, which
// facts differ, how far the clocks are apart, and which names and connections do not work. The code is pure: no I/O, no clock.
//
// The problem. A job may fail although each of its nodes passes its own checks. For example, one node has a different LibTorch,
// an older config, a smaller MTU, or a firewall. The job then fails minutes after the start, in a collective, and the message
// names neither the node nor the difference.
//
// The idea. Most facts only need to be equal. compare_nodes() groups the nodes by the value of a fact. If there are several
// groups, the finding lists the values with their nodes, the largest group first, because the node to repair is usually in a
// small group. For example: "0.2.0 on n0, n1, n2; 0.1.0 on n3". Numbers such as free memory may differ. They are a finding only
// if the number of a node is far below the numbers of the others. If a node did not send a fact, the fact of this node is not
// compared. Possible reasons are an older version of ddprun and a broken driver.
//
// A difference is an error only if the job would fail or lose its results. Each rule gives one finding, regardless of the
// number of nodes. If all nodes agree, the rule gives one check with the verdict ok.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/doctor/nodes/node_report.hpp"
#include "launcher/doctor/verdicts/check.hpp"

namespace ddprun::doctor {

struct NodeClock {
  double offset_s = 0;  // the node's clock minus the clock of the first node
  double error_s = 0;   // half of the time that the query took
};

struct ComparedNode {
  std::string host{};
  std::string label{};        // the host name; with a number if two nodes have the same host name
  std::optional<int> rank{};  // --node-rank
  std::string address{};      // as the first node sees it; empty for the first node itself
  NodeFacts facts{};
  std::optional<NodeClock> clock{};
  std::vector<PeerResult> results{};  // PeerResult::id is an index in the list of nodes
  bool is_complete = true;            // false: `ddprun doctor` on this node ended before it had sent the results
};

struct Attendance {
  int min_nodes = 1;
  int max_nodes = 1;
  double waited_s = 0;
  std::vector<std::string> refused{};  // log lines about refused connections, for example because of a different token
};

bool is_loopback_address(const std::string& address);  // `address`: in numeric form

// Sets the labels of the nodes from their host names and positions.
void label_nodes(std::vector<ComparedNode>& nodes);

// `nodes` must be labelled, and the first one is the node that runs this code.
Checks compare_nodes(const std::vector<ComparedNode>& nodes, const Attendance& attendance);

}  // namespace ddprun::doctor
