// The lock of a run directory: flock on its file `lock`, so it ends with the last process that holds the descriptor, however
// that ends. The file says who holds it: {"host", "pid", "started", "term"}. A later holder has a higher term than all before
// it, also than the one with which the checkpoints are claimed, whatever became of the file meanwhile. Taken by
// open_run_directory only.
#pragma once

#include <cstdint>
#include <filesystem>

namespace ddprun {

// Who may publish checkpoints, in a run directory: {"term", ...} (trainer/checkpoint/writer_claim.hpp writes it).
inline constexpr const char* kWriterClaim = "checkpoints/.writer";

// Takes the lock of an existing directory and writes our name into it. The descriptor is CLOEXEC and stays open. When the
// holder named in the file is a process of this machine that is gone, what holds on is its guardian, which ends within seconds:
// waits for it. Throws UsageError naming the holder, or what the system refused.
int take_run_lock(const std::filesystem::path& root);

// Whether the lock that `fd` holds is still that of this directory: it is not when the directory was removed, renamed or
// replaced.
bool run_lock_is_in_place(int fd, const std::filesystem::path& root);

// The present holder's term; 0 where there is no lock file or it says none.
std::int64_t read_run_term(const std::filesystem::path& root);

// Whether somebody holds it now. False when there is no such directory.
bool run_lock_is_held(const std::filesystem::path& root);

// Throws UsageError naming the holder when somebody holds it now.
void refuse_held_run(const std::filesystem::path& root);

}  // namespace ddprun
