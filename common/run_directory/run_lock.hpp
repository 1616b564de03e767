// The lock of a run directory: flock(2) on its file `lock`. So it ends with the last process that holds the descriptor, however
// that process ends. The file names the holder: {"host", "pid", "started", "term"}. A later holder has a higher term than all
// earlier ones, and than the claim on the checkpoints, whatever happened to the file meanwhile. Only open_run_directory takes
// it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace ddprun {

// The claim of the process that may publish checkpoints: {"term", ...} (trainer/checkpoint/writer_claim.hpp writes it).
inline constexpr const char* kWriterClaim = "checkpoints/.writer";

// Takes the lock of an existing directory and writes our name into it. The descriptor is CLOEXEC and stays open. If the file
// names a process of this machine that is gone, the dead agent's guardian still holds the lock for some seconds: the call waits
// for that. Throws UsageError that names the holder, what the system refused, or a link of another user in the directory, which
// the run would follow (common/shared_folder).
int take_run_lock(const std::filesystem::path& root);

// The lock of a folder that takes the place of a directory which is gone (moved_run.hpp), with the term of `held`, the lock of
// that directory. Returns -1 where a lock file is there already, or the system refuses. CLOEXEC.
int take_lock_of_moved_run(const std::filesystem::path& root, int held);

// Whether the lock on `fd` is still this directory's: not after the directory was removed, renamed or replaced.
bool run_lock_is_in_place(int fd, const std::filesystem::path& root);

// The present holder's term; 0 when it has none. Without a lock file the run's folder was moved or tidied while its job runs:
// then the term of the newest claim on the checkpoints, or 0.
std::int64_t read_run_term(const std::filesystem::path& root);

// Whether any process holds it now. False when there is no such directory.
bool run_lock_is_held(const std::filesystem::path& root);

// Throws UsageError that names the holder when any process holds the lock now.
void refuse_held_run(const std::filesystem::path& root);

}  // namespace ddprun
