// Writes a large file past the page cache (open(2), O_DIRECT): the disk takes the bytes from a buffer here, so that a save
// beside training costs neither the kernel's copy nor the memory of one, and no old page is dropped for it. While one buffer is
// on its way to the disk, the next is filled. hashed_file.cpp uses one for large files where the file system can do it.
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
  // Appends to `fd`, an empty file opened for writing; it stays the caller's. `file` is for messages.
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
  void hand_over();
  void wait_for_disk();

  int fd_;
  std::filesystem::path file_;
  std::array<Buffer, 2> buffers_;
  std::size_t filling_ = 0;  // which of them
  std::size_t filled_ = 0;   // bytes
  std::int64_t offset_ = 0;  // of the buffer that is filled, in the file
  BackgroundTask disk_;      // last, so that it ends before the buffers do
};

}  // namespace ddprun::trainer
