// How the workers of one machine inflate a compressed data set once for all of them: local rank 0 does, and the others hear of
// it through the agent's store. Who can't be reached does not keep them: another process that dies meanwhile, or an older one
// whose word is still there, only costs the time that they need to do it themselves. Process has one; thread-safe.
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
  // What load_idx asks and tells. Without an agent, or alone on the machine, nothing. Both arguments and this object must
  // outlive it.
  InflatedFiles files(const WorkerEnvironment& environment, AgentChannel* agent);

  // For workers that are new in a group which this one is older than: on many machines each round's store begins empty.
  void offer_again(const WorkerEnvironment& environment, AgentChannel& agent);

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> offered_;  // file, memory
};

}  // namespace ddprun::trainer
