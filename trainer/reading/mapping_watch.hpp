// Files that are mapped into memory may change under a running job: somebody truncates or overwrites one, or a mount goes away.
// A read behind the new end of a file raises SIGBUS, which would end the process without a word. A read before it returns
// other bytes than the run began with, silently.
//
// So each mapping is registered here. A handler of SIGBUS maps pages of zeros where the file has none any more, and notes the
// mapping. The code that has made something of mapped bytes calls require_mapped_files() before it uses the result. That also
// finds what raises no signal: the file's size or time has changed, and so has a sample of its bytes. Another
// file may take the name (rename): that is no error, since the mapping keeps the old file.
//
// Cost: one fstat() a file and call, 0.2 us on a local disk; at the start a read of 64 pages a file. Tried and left: a check of
// the times alone, which ends a run after a mere `touch`.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace ddprun::trainer {

// One mapped file, from its mapping to its end. Thread-safe.
class WatchedMapping {
 public:
  // `fd`: of the file, which has been mapped whole at `address`; a duplicate of it is kept. Where there is no descriptor or
  // slot left, the mapping is only watched as far as that goes.
  WatchedMapping(const void* address, std::size_t size, int fd, const std::filesystem::path& file);
  ~WatchedMapping();  // before the mapping is removed
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

 private:
  friend void require_mapped_files();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Throws UsageError naming the first registered file that was truncated, overwritten or unreadable since it was mapped.
void require_mapped_files();

}  // namespace ddprun::trainer
