// Writes a large file past the page cache (open(2), O_DIRECT): the disk takes the bytes from a buffer here, so that a save
// beside training costs neither the kernel's copy nor the memory of one, and no old page is dropped for it. While some buffers
// are on their way to the disk, each by a thread of its own, the next is filled. hashed_file.cpp uses one for large files where
// the file system can do it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "trainer/checkpoint/background_task.hpp"

namespace ddprun::trainer {

class DirectWriter {
 public:
  // Writes to `fd` from its beginning, a file opened for writing; it stays the caller's. `file` is for messages. Where the file
  // has its length already (fallocate), the disk gets several buffers at a time; a file that grows takes one after the other.
  DirectWriter(int fd, std::filesystem::path file);
  ~DirectWriter();
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;

  // True when reads and writes of `fd` now go past the page cache; false where its file system has no way for that.
  static bool switch_on(int fd);

  // Throws std::system_error naming the file; an error may be that of bytes which came earlier.
  void write(std::string_view bytes);
  // Everything is with the kernel when this returns; fsync is the caller's. Throws as write() does.
  void finish();

 private:
  struct Unmap {
    void operator()(char* memory) const;
  };
  using Buffer = std::unique_ptr<char, Unmap>;

  static Buffer new_buffer();

  // One that is filled or on its way.
  struct Part {
    Buffer buffer = new_buffer();
    BackgroundTask disk{};  // last, so that it ends before the buffer does
  };
  void hand_over();
  static void wait_for(Part& part);

  int fd_;
  std::filesystem::path file_;
  std::array<Part, 4> parts_{};
  std::size_t filling_ = 0;  // which of them
  std::size_t filled_ = 0;   // bytes
  std::int64_t offset_ = 0;  // of the buffer that is filled, in the file
};

}  // namespace ddprun::trainer
