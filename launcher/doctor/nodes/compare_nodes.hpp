// Compares the nodes of a job after they have met: which nodes came, which facts differ, how far the clocks are apart, and
// which names and connections do not work. Pure.
//
// The problem. Each node may pass its own checks, and the job fails nevertheless: one node has another LibTorch, an older
// config, a smaller MTU, or a firewall. Such a job fails minutes after the start, in a collective, and the message names
// neither the node nor the difference.
//
// The idea. Most facts only need to be equal. compare_nodes() groups the nodes by the value of a fact. If there are several
// groups, the finding lists the values with their nodes, the largest group first, because the node to repair is usually in a
// small group. For example: "0.2.0 on n0, n1, n2; 0.1.0 on n3". Numbers such as free memory may differ, and only a node far
// below the others is a finding. A fact that a node did not send is not compared, since an older doctor or a broken driver
// cannot send it.
//
// A difference is an error only if the job would fail or lose its results. Each rule gives one finding, whatever the number of
// nodes. If all nodes agree, the rule gives one check with the verdict ok.
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
  bool is_complete = true;            // false: its doctor ended before it sent the results
};

struct Attendance {
  int min_nodes = 1;
  int max_nodes = 1;
  double waited_s = 0;
  std::vector<std::string> refused{};  // log lines about connections that were refused, such as for another token
};

bool is_loopback_address(const std::string& address);  // `address`: in numeric form

// Sets the labels of the nodes from their host names and positions.
void label_nodes(std::vector<ComparedNode>& nodes);

// `nodes` must be labelled, and the first one is the node that runs this code.
Checks compare_nodes(const std::vector<ComparedNode>& nodes, const Attendance& attendance);

}  // namespace ddprun::doctor
