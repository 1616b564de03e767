// Memory that outlives workers, for the snapshots of scripts (python/ddprun/_snapshot.py writes and reads it). All workers of
// the node use one memfd, which this process holds open; workers open it by its path in /proc. Pages that a worker has written
// survive its death, but not the agent's. Unwritten pages use no memory.
#pragma once

#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun {

class SnapshotMemory {
 public:
  explicit SnapshotMemory(int workers);  // 0: no file is made
  // DDPRUN_SNAPSHOTS contains this path and the worker's offset in the file. Empty: no such file could be made, and scripts run
  // without snapshots.
  const std::string& path() const { return path_; }

 private:
  Descriptor file_;
  std::string path_;
};

}  // namespace ddprun
