#include "launcher/node_history/node_history.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace ddprun {
namespace {

// Clocks of nodes may differ. An entry that is further in the future than this is wrong, and would never expire.
constexpr std::chrono::seconds kMaxAhead = std::chrono::days(1);

bool counts(const NodeFailure& failure, std::int64_t now_s) {
  return now_s - kHistoryWindow.count() < failure.time_s && failure.time_s <= now_s + kMaxAhead.count();
}

std::string shortened(std::string text) {
  if (text.size() > kMaxFailureText) text.resize(kMaxFailureText);
  return text;
}

// Keeps the newest kMaxFailuresPerHost entries of each host, and the newest kMaxFailures entries in total.
NodeHistory within_limits(const NodeHistory& sorted) {
  std::map<std::string, std::size_t> of_host;
  NodeHistory kept;
  for (auto failure = sorted.rbegin(); failure != sorted.rend() && kept.size() < kMaxFailures; ++failure) {
    if (++of_host[failure->host] <= kMaxFailuresPerHost) kept.push_back(*failure);
  }
  std::ranges::reverse(kept);
  return kept;
}

std::string text_of_causes(const std::map<std::string, int>& causes) {
  std::vector<std::pair<std::string, int>> sorted(causes.begin(), causes.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [cause, count] : sorted) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + cause;
  return text;
}

}  // namespace

bool is_node_failure(Cause cause) {
  switch (cause) {
    case Cause::kDevice:
    case Cause::kCorruptState:
    case Cause::kStuck:
      return true;
    case Cause::kExitCode:
    case Cause::kSignal:
    case Cause::kException:
    case Cause::kUsage:
    case Cause::kOutOfMemory:
    case Cause::kLostPeer:
    case Cause::kDiverged:
    case Cause::kCheckpoint:
    case Cause::kSpawn:
    case Cause::kStopped:
    case Cause::kTimerExpired:
    case Cause::kHostOutOfMemory:
    case Cause::kSuspectedOutOfMemory:
    case Cause::kHang:
    case Cause::kSuperseded:
    case Cause::kLateUsage:
      return false;
  }
  return false;
}

NodeHistory with_failures(NodeHistory history, const NodeHistory& more, std::int64_t now_s) {
  history.insert(history.end(), more.begin(), more.end());
  std::erase_if(history, [&](const NodeFailure& failure) { return failure.host.empty() || !counts(failure, now_s); });
  for (NodeFailure& failure : history) {
    failure.host = shortened(std::move(failure.host));
    failure.cause = shortened(std::move(failure.cause));
    failure.run = shortened(std::move(failure.run));
  }
  std::ranges::sort(history);
  const auto duplicates = std::ranges::unique(history);
  history.erase(duplicates.begin(), duplicates.end());
  return within_limits(history);
}

std::vector<FailingNode> failing_nodes(const NodeHistory& history, std::int64_t now_s) {
  std::map<std::string, std::map<std::string, int>> by_host;
  for (const NodeFailure& failure : history) {
    if (counts(failure, now_s)) ++by_host[failure.host][failure.cause];
  }
  std::vector<FailingNode> failing;
  for (const auto& [host, causes] : by_host) {
    int failures = 0;
    for (const auto& [cause, count] : causes) failures += count;
    if (failures >= kFailuresOfFailingNode)
      failing.push_back({.host = host, .failures = failures, .causes = text_of_causes(causes)});
  }
  std::ranges::stable_sort(failing, std::ranges::greater{}, &FailingNode::failures);
  return failing;
}

std::string describe(const FailingNode& node) {
  return node.host + " failed " + std::to_string(node.failures) + " times in the last " +
         std::to_string(std::chrono::duration_cast<std::chrono::days>(kHistoryWindow).count()) + " days (" + node.causes + ")";
}

}  // namespace ddprun
