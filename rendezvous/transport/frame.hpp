// Encodes and decodes frames. A frame begins with a 4-byte length in network byte order. The content of that length follows. A
// length over the limit is a permanent error, which is detected before any byte of the frame is stored. So the memory of a
// connection grows with the received bytes, and not with the announced length. The code is pure (no I/O, no clock).
// connection.cpp uses it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

inline constexpr std::size_t kFrameHeaderBytes = 4;

// Appends a frame with the content `content` to `to`. The content must be shorter than 2^32 bytes.
void append_frame(std::string_view content, std::string& to);

class FrameReader {
 public:
  explicit FrameReader(std::size_t limit) : limit_(limit) {}

  void set_limit(std::size_t limit) { limit_ = limit; }  // limit for frames that start after this call
  void feed(std::string_view bytes);
  // Returns the content of the next complete frame, valid until the next call to next() or feed(). Returns nullopt if no frame
  // is complete, or after a frame over the limit.
  std::optional<std::string_view> next();
  // Returns the announced length of a frame over the limit; nullopt if no frame was over the limit.
  std::optional<std::size_t> too_large() const { return too_large_; }

 private:
  std::size_t limit_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::optional<std::size_t> too_large_;
};

}  // namespace ddprun
