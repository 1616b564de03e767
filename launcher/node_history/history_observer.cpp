#include "launcher/node_history/history_observer.hpp"

#include <algorithm>

namespace ddprun {

using rendezvous::NodeNotice;

void NodeHistoryObserver::on(const RunEvent& event) {
  if (const auto* const started = std::get_if<RunStarted>(&event)) report(host_, started->time_ns);
  if (const auto* const changed = std::get_if<NodesChanged>(&event);
      changed != nullptr && changed->notice.kind == NodeNotice::Kind::kJoined)
    report(changed->notice.text, changed->time_ns);
  if (NodeHistory failures = collector_.on(event); !failures.empty()) record_(std::move(failures));
}

void NodeHistoryObserver::report(const std::string& host, std::int64_t time_ns) {
  const auto node = std::ranges::find(failing_, host, &FailingNode::host);
  if (node == failing_.end() || !reported_.insert(host).second) return;
  publish_({.notice = {.kind = NodeNotice::Kind::kFailing, .text = "node " + describe(*node)}, .time_ns = time_ns});
}

}  // namespace ddprun
