// Frames: byte strings after a length of four bytes, most significant byte first. Pure; connection.cpp uses it. A length over
// the limit is a permanent error, detected before any byte of the frame is stored. So memory grows with the received bytes, not
// with the announced size.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

inline constexpr std::size_t kFrameHeaderBytes = 4;

// Appends header and content. The content's size must be below 2^32.
void append_frame(std::string_view content, std::string& to);

class FrameReader {
 public:
  explicit FrameReader(std::size_t limit) : limit_(limit) {}

  void set_limit(std::size_t limit) { limit_ = limit; }  // for frames that begin later
  void feed(std::string_view bytes);
  // The next complete frame, valid until the next call of next() or feed(). nullopt if none is complete, or after one over the
  // limit.
  std::optional<std::string_view> next();
  // The announced size of a frame that is over the limit.
  std::optional<std::size_t> too_large() const { return too_large_; }

 private:
  std::size_t limit_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::optional<std::size_t> too_large_;
};

}  // namespace ddprun
