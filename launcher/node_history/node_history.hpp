// The failures of nodes over the last days, across all runs of a user.
//
// The problem. In a cluster, a few machines cause most failures: a GPU that falls off the bus, a cable with errors, a disk that
// stalls. A single run sees one failure and continues, and the next run meets the same machine again. No run has enough
// failures to blame a machine.
//
// The idea. Each run adds the failures of its nodes to one file: host, time, cause and run. A host with kFailuresOfFailingNode
// failures within kHistoryWindow is failing. Later runs report this host at their start, and may leave it out
// (--exclude-failing-nodes).
//
// Which failures count. The node itself must be the likely cause: its agent was lost (machine, network or kernel), its GPU
// failed, its workers computed a different state, or a process hangs in the kernel. If a worker throws an exception or needs
// too much memory, most likely the program is at fault. Such failures would mostly be counted for the node of rank 0.
//
// The history is bounded: old entries expire, and one host has at most kMaxFailuresPerHost entries, so a broken machine cannot
// evict the others. The code is pure: no I/O, no clock.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/failure/cause.hpp"

namespace ddprun {

struct NodeFailure {
  std::int64_t time_s = 0;  // seconds since 1970
  std::string host;
  std::string cause;  // kLostNode, or the name of a Cause
  std::string run;    // the run directory, or the job's title
  auto operator<=>(const NodeFailure&) const = default;
};
using NodeHistory = std::vector<NodeFailure>;  // oldest first

inline constexpr const char* kLostNode = "lost";

inline constexpr std::chrono::seconds kHistoryWindow = std::chrono::days(7);
inline constexpr int kFailuresOfFailingNode = 3;
inline constexpr std::size_t kMaxFailuresPerHost = 20;
inline constexpr std::size_t kMaxFailures = 500;
inline constexpr std::size_t kMaxFailureText = 255;  // maximum bytes of a host, cause or run name; longer texts are cut

// Returns true if a failure with this cause counts as a failure of its node.
bool is_node_failure(Cause cause);

// Returns the history with the new failures, without expired entries and duplicates, and within the limits.
NodeHistory with_failures(NodeHistory history, const NodeHistory& more, std::int64_t now_s);

struct FailingNode {
  std::string host;
  int failures = 0;    // within kHistoryWindow
  std::string causes;  // "2 lost, 1 device"
};

// Returns the hosts with at least kFailuresOfFailingNode failures within kHistoryWindow, sorted by the number of failures in
// descending order.
std::vector<FailingNode> failing_nodes(const NodeHistory& history, std::int64_t now_s);

// Returns a text such as "gpu7 failed 3 times in the last 7 days (2 lost, 1 device)".
std::string describe(const FailingNode& node);

}  // namespace ddprun
