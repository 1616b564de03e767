#include "launcher/node_history/failure_collector.hpp"

#include <utility>

namespace ddprun {
namespace {

using Kind = rendezvous::NodeNotice::Kind;

std::int64_t seconds_of(std::int64_t time_ns) {
  return time_ns / 1'000'000'000;
}

}  // namespace

NodeHistory NodeFailureCollector::on(const RunEvent& event) {
  if (const auto* const changed = std::get_if<NodesChanged>(&event)) return on(*changed);
  if (const auto* const failed = std::get_if<RoundFailed>(&event)) return on(*failed);
  if (std::holds_alternative<RunEnded>(event)) return take_lost();
  return {};
}

NodeHistory NodeFailureCollector::on(const NodesChanged& event) {
  const rendezvous::NodeNotice& notice = event.notice;
  const auto keep = [&] {
    if (!notice.failed_host.empty())
      lost_.push_back({.time_s = seconds_of(event.time_ns), .host = notice.failed_host, .cause = kLostNode, .run = job_.run});
  };
  switch (notice.kind) {
    case Kind::kLeading:
      leads_ = true;
      break;
    case Kind::kSearching:  // this node has lost the coordinator, or has stepped down
      leads_ = false;
      lost_.clear();
      keep();
      break;
    case Kind::kFollowing:  // a coordinator was found; if it is another node, that node records the failures
      if (!leads_) lost_.clear();
      break;
    case Kind::kLost:
      if (leads_) keep();
      break;
    case Kind::kReleased:
      return take_lost();
    default:
      break;
  }
  return {};
}

NodeHistory NodeFailureCollector::on(const RoundFailed& event) {
  if (!leads_ || !is_node_failure(event.first.cause)) return {};
  return {{.time_s = seconds_of(event.time_ns),
           .host = event.first.host.empty() ? job_.host : event.first.host,
           .cause = name_of(event.first.cause),
           .run = job_.run}};
}

NodeHistory NodeFailureCollector::take_lost() {
  return leads_ ? std::exchange(lost_, {}) : NodeHistory{};
}

}  // namespace ddprun
