// Detects changes of files while they are mapped.
//
// The problem. A mapped file may change during a job: a user truncates or overwrites it, or its file system is unmounted. A
// read after the new end of the file raises SIGBUS, which would kill the process without a message. A read before the new end
// returns different bytes than at the start of the run, without an error.
//
// The idea. The class WatchedMapping registers each mapping. A handler for SIGBUS replaces the missing pages of a registered
// mapping by zero pages, so that the process continues, and marks the mapping as lost. Code that has read mapped bytes calls
// require_mapped_files() before it uses the result. This call throws if a mapping is marked as lost. It also detects changes
// that raise no signal: a smaller size, or a new modification time together with a change in a sample of the bytes. It is not
// an error if a rename replaces the file by a different one, since the mapping still refers to the old file.
//
// The cost. Each call makes one fstat() per file, which takes 0.2 us on a local disk. When a file is registered, 64 of its
// pages are read.
//
// We considered a comparison of only the modification time. But then a mere `touch` of the file would end the run.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace ddprun::trainer {

// While an object exists, changes of its mapped file are detected. The class is thread-safe.
class WatchedMapping {
 public:
  // The caller has mapped the whole file `fd` at `address`. The object owns a duplicate of the descriptor. If the process has
  // no free descriptor, or the handler's table is full, only some kinds of changes are detected.
  WatchedMapping(const void* address, std::size_t size, int fd, const std::filesystem::path& file);
  ~WatchedMapping();  // destroy the object before munmap()
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

 private:
  friend void require_mapped_files();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Throws UsageError if a registered file was truncated or overwritten, or became unreadable, after it was mapped. The message
// names the first such file.
void require_mapped_files();

}  // namespace ddprun::trainer
