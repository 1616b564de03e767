// Memory that outlives workers, for the snapshots of scripts (python/ddprun/_snapshot.py writes and reads it). One memory file
// for all workers of the node, which this process holds open: workers open it by its path below /proc. The pages that a worker
// has written stay when it is killed, and are gone with the agent. Empty pages cost nothing.
#pragma once

#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun {

class SnapshotMemory {
 public:
  explicit SnapshotMemory(int workers);  // 0: there is no file
  // DDPRUN_SNAPSHOTS names it, and the worker's place in it. Empty: the system gives no such file, and scripts run without
  // snapshots.
  const std::string& path() const { return path_; }

 private:
  Descriptor file_;
  std::string path_;
};

}  // namespace ddprun
