// Writes a large file directly to the disk, past the page cache (open(2), O_DIRECT). The disk takes the bytes from a buffer of
// this process. So a save during training costs neither the kernel's copy nor the memory for it, and evicts no other page. Each
// full buffer is written by its own thread while the next one is filled. hashed_file.cpp uses this class for large files if the
// file system supports it.
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
  // Writes to `fd`, which is open for writing, from its beginning. The caller still owns `fd`. `file` is for messages. If the
  // file already has its length (fallocate), the disk gets several buffers at a time. A growing file takes one after the other.
  DirectWriter(int fd, std::filesystem::path file);
  ~DirectWriter();
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;

  // Returns true if reads and writes of `fd` now bypass the page cache; false if the file system does not support that.
  static bool switch_on(int fd);

  // Throws std::system_error naming the file. The error may belong to bytes of an earlier call.
  void write(std::string_view bytes);
  // When this returns, the kernel has all bytes. The caller must call fsync. Throws as write() does.
  void finish();

 private:
  struct Unmap {
    void operator()(char* memory) const;
  };
  using Buffer = std::unique_ptr<char, Unmap>;

  static Buffer new_buffer();

  // A buffer that is filled or written.
  struct Part {
    Buffer buffer = new_buffer();
    BackgroundTask disk{};  // last, so that the thread ends before the buffer is freed
  };
  void hand_over();
  static void wait_for(Part& part);

  int fd_;
  std::filesystem::path file_;
  std::array<Part, 4> parts_{};
  std::size_t filling_ = 0;  // index of the part that is filled
  std::size_t filled_ = 0;   // bytes in that part
  std::int64_t offset_ = 0;  // offset in the file of the part that is filled
};

}  // namespace ddprun::trainer
