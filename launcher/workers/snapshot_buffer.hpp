// The memory for the snapshots of scripts (python/ddprun/_snapshot.py). All workers of the node share one memfd, which the
// agent keeps open. Workers open it by its path in /proc. The pages survive the death of the worker that wrote them, but not
// the death of the agent.
//
// Each worker has two areas of 1 TiB, one for each generation (copy) of its snapshot. While the worker overwrites the older
// copy, the newer one stays complete. The file is sparse, so pages that were never written use no memory.
#pragma once

#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun {

class SnapshotBuffer {
 public:
  explicit SnapshotBuffer(int workers);  // If `workers` is 0, no memory is created.
  // Returns the path of the memfd. The agent passes it to each worker in DDPRUN_SNAPSHOTS, together with the worker's index.
  // The path is empty if the memfd could not be created. Scripts then run without snapshots.
  const std::string& path() const { return path_; }

 private:
  Descriptor file_;
  std::string path_;
};

}  // namespace ddprun
