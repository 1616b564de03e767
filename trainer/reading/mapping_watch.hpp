// A mapped file may change during a job: a user truncates or overwrites it, or a mount disappears. A read past the new end
// raises SIGBUS, which would end the process without a message. A read before it silently returns other bytes than the run
// began with.
//
// So each mapping is registered here. A handler of SIGBUS maps zero pages where the file has no more bytes, and marks the
// mapping. Code that has read mapped bytes calls require_mapped_files() before it uses the result. That also finds changes that
// raise no signal: the file's size or time has changed, and so has a sample of its bytes. A rename that puts another file in
// its place is not an error, since the mapping keeps the old file.
//
// Cost: one fstat() per file and call, 0.2 us on a local disk, and at the start a read of 64 pages per file. We tried a check
// of the times alone and dropped it, since it ends a run after a mere `touch`.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace ddprun::trainer {

// One mapped file, for the lifetime of its mapping. Thread-safe.
class WatchedMapping {
 public:
  // `fd`: descriptor of the file, which is mapped as a whole at `address`. The class keeps a duplicate. If no descriptor or
  // slot is left, only a part of the changes can be detected.
  WatchedMapping(const void* address, std::size_t size, int fd, const std::filesystem::path& file);
  ~WatchedMapping();  // destroy it before the mapping is removed
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

 private:
  friend void require_mapped_files();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Throws UsageError with the name of the first registered file that was truncated, overwritten or unreadable since it was
// mapped.
void require_mapped_files();

}  // namespace ddprun::trainer
