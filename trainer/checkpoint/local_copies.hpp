// Finds the folders in which a node keeps copies of a run's checkpoints on its own disk (checkpoint.local_dir):
//
//   <local_dir>/<run directory's name>-<digest>/copy-0/step-000000400
//
// The digest covers the run directory's path and the config, so that runs that share a disk use different folders. A folder
// copy-N belongs to the process that holds its lock, regardless of the process's rank. So two nodes on one machine have copy-0
// and copy-1. A hung worker keeps its folder locked, and the worker that replaces it uses another folder. Any process may read
// all folders.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/system/descriptor.hpp"

namespace ddprun::trainer {

// Returns the folder of this run on this machine; it may not exist. `run_dir` is absolute and need not be reachable.
std::filesystem::path local_copies_of(const std::filesystem::path& local_dir, const std::filesystem::path& run_dir,
                                      const std::string& config_digest);

// Returns all folders copy-N in `copies`, in no particular order. The list is empty if `copies` does not exist. Throws
// std::system_error if `copies` can't be listed.
std::vector<std::filesystem::path> copy_folders(const std::filesystem::path& copies);

// The folder to which one process writes. It is locked from the first take() until the object is destroyed.
class LocalCopyFolder {
 public:
  explicit LocalCopyFolder(std::filesystem::path copies);

  // Returns the first folder that no other process has locked, and creates it if needed. Later calls return the same folder,
  // unless it was removed in the meantime. Throws std::system_error with the path.
  const std::filesystem::path& take();

 private:
  bool try_to_lock(const std::filesystem::path& folder);

  std::filesystem::path copies_;
  std::filesystem::path folder_;
  Descriptor lock_;
};

}  // namespace ddprun::trainer
