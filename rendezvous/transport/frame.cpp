#include "rendezvous/transport/frame.hpp"

#include <cstdint>

namespace ddprun {

void append_frame(std::string_view content, std::string& to) {
  const auto size = static_cast<std::uint32_t>(content.size());
  for (const unsigned shift : {24U, 16U, 8U, 0U}) to.push_back(static_cast<char>((size >> shift) & 0xffU));
  to += content;
}

void FrameReader::feed(std::string_view bytes) {
  if (too_large_) return;
  if (at_ > 0) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
  buffer_ += bytes;
}

std::optional<std::string_view> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (!too_large_ && rest.size() >= kFrameHeaderBytes) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < kFrameHeaderBytes; ++i) size = size << 8U | static_cast<unsigned char>(rest[i]);
    if (size > limit_) {
      too_large_ = size;
    } else if (rest.size() >= kFrameHeaderBytes + size) {
      at_ += kFrameHeaderBytes + size;
      return rest.substr(kFrameHeaderBytes, size);
    }
  }
  // Frees the memory when all received frames are complete, because thousands of idle connections are in this state.
  if (too_large_ || rest.empty()) {
    std::string().swap(buffer_);
    at_ = 0;
  }
  return std::nullopt;
}

}  // namespace ddprun
