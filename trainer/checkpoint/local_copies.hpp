// Where a node keeps copies of a run's checkpoints on its own disk (checkpoint.local_dir):
//
//   <local_dir>/<run directory's name>-<digest>/copy-0/step-000000400
//
// The digest is of the run directory's path and of the config, so that runs that share a disk don't meet. A folder copy-N
// belongs to whoever holds the lock in it, so to one process at a time, whatever its rank is: two nodes on one machine have
// copy-0 and copy-1, and a worker that hangs keeps its folder while its successor takes another. Any process may read all.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::trainer {

// The folder of this run on this machine; need not be there. `run_dir` is absolute, and need not be reachable.
std::filesystem::path local_copies_of(const std::filesystem::path& local_dir, const std::filesystem::path& run_dir,
                                      const std::string& config_digest);

// All copy-N in it, in no order; empty where there is none. Throws std::system_error when it can't be listed.
std::vector<std::filesystem::path> copy_folders(const std::filesystem::path& copies);

// The folder that one process writes to, from its first take() to its end.
class OwnCopy {
 public:
  explicit OwnCopy(std::filesystem::path copies);
  ~OwnCopy();
  OwnCopy(const OwnCopy&) = delete;
  OwnCopy& operator=(const OwnCopy&) = delete;

  // The first folder that nobody else has, made if needed; the same one at each call unless somebody removed it. Throws
  // std::system_error naming the path.
  const std::filesystem::path& take();

 private:
  bool still_there() const;
  bool try_to_lock(const std::filesystem::path& folder);

  std::filesystem::path copies_;
  std::filesystem::path folder_;
  int lock_ = -1;
};

}  // namespace ddprun::trainer
