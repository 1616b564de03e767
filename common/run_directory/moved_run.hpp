// Handles a run directory that is removed, renamed or unmounted while its job runs. The job creates a new folder of that name
// and continues there (docs/run-directory.md). Workers that start later read config.json there, and the term of its lock.
//
// The lock must have the job's own term. With a higher one, the survivors' claim on the checkpoints
// (trainer/checkpoint/writer_claim.hpp) would look like that of an earlier start. Without a term, the claim of a replacement
// would. Both cases end workers with "another start continues this run". A renamed folder keeps its files, so the newest
// checkpoint is linked into the new one: a recovery from checkpoints, and the next start, resume from it. Files of an unmounted
// or removed folder are lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun {

// A directory's identity in its file system; {0, 0} if there is no directory.
struct DirectoryIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const DirectoryIdentity&) const = default;
};
DirectoryIdentity identity_of_directory(const std::filesystem::path& path);

// Creates the folder again, if `root` no longer leads to directory `old` and contains no lock. Returns the descriptor of the
// new lock (CLOEXEC), which the caller keeps. Returns -1 if nothing was done: the old directory is still in its place, another
// job has started there, or the system refuses. `held_lock`: the lock of the lost directory. `config`: the text for
// config.json; empty for a script's job, which has none. Throws nothing.
int remake_moved_run(const std::filesystem::path& root, DirectoryIdentity old, int held_lock, const std::string& config);

}  // namespace ddprun
