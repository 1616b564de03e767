// The lock of a run directory: flock(2) on its file `lock`. The kernel releases the lock when the last process with the
// descriptor ends, even if that process is killed. The file describes the holder: {"host", "pid", "started", "term"}. The term
// is a counter. The term of a new holder is higher than the terms of all earlier holders and of the checkpoint claim, even if
// the file was damaged in between.
#pragma once

#include <cstdint>
#include <filesystem>

namespace ddprun {

// The checkpoint claim: a file that names the process that may publish checkpoints, {"term", ...}.
// trainer/checkpoint/writer_claim.hpp writes it.
inline constexpr const char* kWriterClaim = "checkpoints/.writer";

// Takes the lock of an existing directory, and writes this process into the file as the holder. Returns the descriptor
// (CLOEXEC), which the caller must keep open. If the holder is a process of this machine that has ended, its guardian may
// still have the lock for some seconds. So the call waits up to 5 s. Throws UsageError if another process holds the lock, if a
// system call fails, or if the directory contains a link of another user (common/shared_folder).
int take_run_lock(const std::filesystem::path& root);

// Takes the lock of a directory that replaces a lost directory (moved_run.hpp). `held` is the lock of the lost directory. The
// new lock has the same term. Returns the descriptor (CLOEXEC); -1 if a lock file already exists, or if a system call fails.
int take_lock_of_moved_run(const std::filesystem::path& root, int held);

// Returns true if `fd` is still the lock file of this directory; false after the directory was removed, renamed or replaced.
bool run_lock_is_in_place(int fd, const std::filesystem::path& root);

// Returns the term in the lock file; 0 if the file contains no term. If there is no lock file, the directory was moved or
// cleaned while its job was running. In this case, returns the term of the checkpoint claim, or 0 if there is no claim.
std::int64_t read_run_term(const std::filesystem::path& root);

// Returns true if any process holds the lock now, and false if the directory does not exist.
bool run_lock_is_held(const std::filesystem::path& root);

// Throws UsageError if any process holds the lock now. The message names the holder.
void refuse_held_run(const std::filesystem::path& root);

}  // namespace ddprun
