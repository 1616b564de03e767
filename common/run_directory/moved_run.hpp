// Handles a run directory that is removed, renamed or unmounted while its job runs. The job creates a new directory with the
// same name and continues there (docs/run-directory.md). Workers that start later read config.json and the lock in the new
// directory. A lock contains a term: a number that increases with each start.
//
// The new lock must have the term of the job. If the term were higher, the checkpoint claim
// (trainer/checkpoint/writer_claim.hpp) of the surviving workers would seem older than the lock. If the lock had no term, the
// claim of a replacement worker would seem older than the claims of the surviving workers. In both cases, workers would end
// with "another start continues this run".
//
// A renamed directory still has its files. So the newest checkpoint is linked into the new directory. A recovery or the next
// start can resume from this link. The files of an unmounted or removed directory are lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun {

// The identity of a directory, which a rename does not change; {0, 0} if there is no directory.
struct DirectoryIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const DirectoryIdentity&) const = default;
};
DirectoryIdentity identity_of_directory(const std::filesystem::path& path);

// Creates the directory again if `root` no longer names the directory `old` and contains no lock. `held_lock` is the lock of
// the lost directory. `config` is the text for config.json; it is empty for a script's job, which has no config. Returns the
// descriptor of the new lock (CLOEXEC), which the caller must keep open. Returns -1 if the directory was not created: the old
// directory is still in its place, another job has started at this path, or a system call failed. Does not throw.
int remake_moved_run(const std::filesystem::path& root, DirectoryIdentity old, int held_lock, const std::string& config);

}  // namespace ddprun
