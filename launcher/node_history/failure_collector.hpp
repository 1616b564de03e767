// Collects the failures of nodes from the events of a job. Only the agent that leads records them, so that each failure is
// recorded once. The code is pure: no I/O, no clock.
//
// A lost node is not recorded immediately. A coordinator that is cut off loses all other nodes, although only its own network
// has failed. So the collector keeps lost nodes until this agent starts the next round or ends the job. Only a coordinator
// with a majority can do that. A coordinator without a majority steps down, and its collector drops the lost nodes. If the
// coordinator itself is lost, each other node stores the coordinator's host name, and the next coordinator records the
// failure.
#pragma once

#include <string>
#include <utility>

#include "launcher/events/run_event.hpp"
#include "launcher/node_history/node_history.hpp"

namespace ddprun {

class NodeFailureCollector {
 public:
  struct Job {
    bool several_nodes = false;
    std::string host{};  // this node's host name
    std::string run{};   // the run directory, or the job's title
  };
  explicit NodeFailureCollector(Job job) : job_(std::move(job)), leads_(!job_.several_nodes) {}

  // Returns the failures that must be recorded now.
  NodeHistory on(const RunEvent& event);

 private:
  NodeHistory on(const NodesChanged& event);
  NodeHistory on(const RoundFailed& event);
  NodeHistory take_lost();

  Job job_;
  bool leads_;
  NodeHistory lost_;
};

}  // namespace ddprun
