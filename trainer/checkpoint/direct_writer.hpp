// Writes a large file directly to the disk, past the page cache (open(2), O_DIRECT). The disk reads the bytes from a buffer of
// this process, so a save during training needs no copy in the page cache and evicts no other page from it. A separate thread
// writes each full buffer while the next one is filled. hashed_file.cpp uses this class for large files if the file system
// supports it.
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
  // `fd` must be open for writing. The bytes are written from offset 0. The caller still owns `fd`. `file` is the path for
  // error messages. If the file already has its final length (fallocate), several buffers are written at a time, otherwise only
  // one.
  DirectWriter(int fd, std::filesystem::path file);
  ~DirectWriter();
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;

  // Makes reads and writes of `fd` bypass the page cache. Returns false if the file system does not support that.
  static bool switch_on(int fd);

  // Throws std::system_error with the file's path. The error may concern bytes of an earlier call.
  void write(std::string_view bytes);
  // When finish() returns, the kernel has received all bytes, but only the caller's fsync writes them to the disk. Throws the
  // errors of write().
  void finish();

 private:
  struct Unmap {
    void operator()(char* memory) const;
  };
  using Buffer = std::unique_ptr<char, Unmap>;

  static Buffer new_buffer();

  // A buffer that is being filled or written.
  struct Part {
    Buffer buffer = new_buffer();
    BackgroundTask disk{};  // declared last, so that the thread ends before the buffer is freed
  };
  void hand_over();
  static void wait_for(Part& part);

  int fd_;
  std::filesystem::path file_;
  std::array<Part, 4> parts_{};
  std::size_t filling_ = 0;  // index in parts_ of the buffer that is being filled
  std::size_t filled_ = 0;   // number of bytes in the buffer that is being filled
  std::int64_t offset_ = 0;  // offset in the file of the first byte of the buffer that is being filled
};

}  // namespace ddprun::trainer
