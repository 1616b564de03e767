// Lets the workers of one machine inflate a compressed data set once. Local rank 0 inflates it, and the others get its name
// from the agent's store. No failure stops a worker. If the inflating process dies or an old entry is still in the store, the
// others inflate the file themselves. Process has one object; thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "trainer/data/inflated_files.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

class AgentChannel;

class InflatedSharing {
 public:
  // The exchange for load_idx. Empty without an agent, or for the only worker of a machine. Both arguments and this object must
  // outlive the result.
  InflatedFiles files(const WorkerEnvironment& environment, AgentChannel* agent);

  // Repeats the offers for new workers of a later group: in a multi-node job each round's store begins empty.
  void offer_again(const WorkerEnvironment& environment, AgentChannel& agent);

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> offered_;  // from file name to memory name
};

}  // namespace ddprun::trainer
