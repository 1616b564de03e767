// The result of `ddprun doctor` for the nodes of a job, and its output. The first node prints one table for each node and a
// list of differences, or the same as JSON lines. Another node prints only its own findings, because the outputs of all nodes
// often appear on the same console. The code is pure: no I/O, no clock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/doctor/nodes/node_report.hpp"
#include "launcher/doctor/verdicts/check.hpp"

namespace ddprun::doctor {

struct NodeTable {
  std::string label{};    // the host name; with a number if two nodes have the same host name
  std::string address{};  // empty for this node
  Checks checks{};
};

struct Meeting {
  // On the first node: the checks of all nodes, this node first, and the comparison. Otherwise empty.
  std::vector<NodeTable> tables{};
  Checks comparison{};
  // On another node: the verdict on all nodes, and the name of the first node.
  std::optional<GroupResult> result{};
  // The reason why this node could not exchange reports with the others; empty otherwise.
  Checks problems{};
};

// The verdict on all nodes. Call this on the first node only.
GroupResult result_of(const std::vector<NodeTable>& tables, const Checks& comparison, const std::string& host);

// `own`: the checks of this node, and its host name.
std::string table_of(const Meeting& meeting, const Checks& own);
std::string json_lines_of(const Meeting& meeting, const Checks& own, const std::string& own_host);
// The summary line that a node other than the first one prints to standard error. Empty on the first node.
std::string summary_of(const Meeting& meeting, const Checks& own, const std::string& own_host);
int exit_code_of(const Meeting& meeting, const Checks& own);

}  // namespace ddprun::doctor
