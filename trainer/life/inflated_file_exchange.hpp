// Lets the workers of one machine inflate a compressed data set only once. Local rank 0 inflates it into shared memory, and the
// other workers get the name of that memory from the agent's store. A failure does not stop a worker: if the inflating process
// exits, or if the store still has an old entry, the other workers inflate the file themselves. Several threads may use the
// object. The class Process owns the only instance.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "trainer/data/inflated_files.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

class AgentChannel;

class InflatedFileExchange {
 public:
  // Returns the functions that load_idx() uses for the exchange. They are empty if there is no agent, or if this is the only
  // worker of the machine. Both arguments and this object must outlive the result.
  InflatedFiles files(const WorkerEnvironment& environment, AgentChannel* agent);

  // Stores the memory names again for the new workers of a later group. This is needed because the store of a multi-node job is
  // empty after each restart of the workers.
  void offer_again(const WorkerEnvironment& environment, AgentChannel& agent);

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> offered_;  // maps a file name to the name of its shared memory
};

}  // namespace ddprun::trainer
