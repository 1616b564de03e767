// The lock of a run directory: flock(2) on its file `lock`. So it ends with the last process that holds the descriptor, no
// matter how that process ends. The file contains the holder: {"host", "pid", "started", "term"}. A later holder has a higher
// term than all earlier ones, and than the claim on the checkpoints, even if the file was damaged meanwhile. Only
// open_run_directory takes it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace ddprun {

// The claim of the process that may publish checkpoints: {"term", ...} (trainer/checkpoint/writer_claim.hpp writes it).
inline constexpr const char* kWriterClaim = "checkpoints/.writer";

// Takes the lock of an existing directory and writes this process into it. The descriptor is CLOEXEC and stays open. If the
// file names a process of this machine that is gone, the dead agent's guardian still holds the lock for some seconds, and the
// call waits for that. Throws UsageError with the holder, with the refusal of the system, or with a link of another user in the
// directory that the run would follow (common/shared_folder).
int take_run_lock(const std::filesystem::path& root);

// Takes the lock of a folder that replaces a lost directory (moved_run.hpp), with the term of `held`, the lock of that
// directory. Returns -1 if there already is a lock file, or if the system refuses. CLOEXEC.
int take_lock_of_moved_run(const std::filesystem::path& root, int held);

// True if the lock on `fd` still belongs to this directory: false after the directory was removed, renamed or replaced.
bool run_lock_is_in_place(int fd, const std::filesystem::path& root);

// The current holder's term; 0 if it has none. If there is no lock file, the run's folder was moved or cleaned while its job
// runs. Then it returns the term of the newest claim on the checkpoints, or 0.
std::int64_t read_run_term(const std::filesystem::path& root);

// True if any process holds it now. False if there is no such directory.
bool run_lock_is_held(const std::filesystem::path& root);

// Throws UsageError with the holder's name if any process holds the lock now.
void refuse_held_run(const std::filesystem::path& root);

}  // namespace ddprun
