// A run directory that is removed, renamed or unmounted while its job runs: the job makes a new folder of that name and
// continues there (docs/run-directory.md). Workers that start later read config.json there, and the term of its lock.
//
// The lock must have the job's own term. With a higher one, the survivors' claim on the checkpoints
// (trainer/checkpoint/writer_claim.hpp) would be an earlier start's; with none, the claim of a replacement would be. Either
// ends workers with "another start continues this run". A renamed folder keeps its files, so the newest checkpoint is linked
// into the new one: a recovery from checkpoints, and the next start, resume from it. Files of an unmounted or removed folder
// are out of reach.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun {

// A directory's identity in its file system; {0, 0}: there is none.
struct DirectoryIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const DirectoryIdentity&) const = default;
};
DirectoryIdentity identity_of_directory(const std::filesystem::path& path);

// Makes the folder again, if `root` does not lead to directory `old` any more and no lock is there. Returns the descriptor of
// the new lock (CLOEXEC), which the caller keeps; -1 if nothing was done: the old directory is still in its place, another job
// has begun there, or the system refuses. `held_lock`: of the directory that is gone. `config`: the text for config.json;
// empty: a script's job has none. Throws nothing.
int remake_moved_run(const std::filesystem::path& root, DirectoryIdentity old, int held_lock, const std::string& config);

}  // namespace ddprun
