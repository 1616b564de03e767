// Reports the failing nodes of a job at its start, and adds the failures of its nodes to the history. The class is an observer
// of the agent; launcher/launch creates it. This class does no I/O: it calls the functions that the constructor receives.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/events/run_event.hpp"
#include "launcher/node_history/failure_collector.hpp"
#include "launcher/node_history/node_history.hpp"

namespace ddprun {

class NodeHistoryObserver final : public RunObserver {
 public:
  using Publish = std::function<void(NodesChanged)>;  // the function must not send the event before on() has returned
  using Record = std::function<void(NodeHistory)>;    // adds failures to the file
  NodeHistoryObserver(NodeFailureCollector::Job job, std::vector<FailingNode> failing, Publish publish, Record record)
      : host_(job.host),
        collector_(std::move(job)),
        failing_(std::move(failing)),
        publish_(std::move(publish)),
        record_(std::move(record)) {}

  void on(const RunEvent& event) override;

 private:
  // Each host is reported once. All nodes report themselves, and the coordinator reports each node that joins.
  void report(const std::string& host, std::int64_t time_ns);

  std::string host_;
  NodeFailureCollector collector_;
  std::vector<FailingNode> failing_;
  std::set<std::string> reported_;
  Publish publish_;
  Record record_;
};

}  // namespace ddprun
