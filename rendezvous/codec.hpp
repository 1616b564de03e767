// Frames of the rendezvous: 4 bytes length of the rest (little endian), 1 byte type, then the fields of fields.hpp in binary.
// Binary and not JSON: a coordinator reads ten thousand of them a second, and every field has a place and a limit, which leaves
// little to guess for who sends garbage. Pure: bytes in, messages out; the secure transport owns the sockets. Limits are
// checked before anything is allocated; a frame that breaks them throws ProtocolError, and the caller closes the connection.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rendezvous/message.hpp"

namespace ddprun::rendezvous {

// Before the other side has been welcomed, and afterwards (values of the workers' store are up to 16 MiB).
inline constexpr std::size_t kMaxFirstFrameBytes = 64u << 10;
inline constexpr std::size_t kMaxFrameBytes = 18u << 20;

inline constexpr std::size_t kMaxHostBytes = 255;
inline constexpr std::size_t kMaxRoleBytes = 128;
inline constexpr std::size_t kMaxTextBytes = 4u << 10;    // for people; longer ones are cut when encoded
inline constexpr std::size_t kMaxMemoryBytes = 1u << 10;  // of the restart policy
inline constexpr std::size_t kMaxJobBytes = 4u << 20;     // config, arguments and options for `ddprun join`

class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One whole frame. Texts for people are cut to their limit; anything else over its limit throws ProtocolError.
std::string encode(const FromMember& message);
std::string encode(const FromCoordinator& message);

// The message of a frame's bytes behind the length. A Hello or Refused of another protocol version is understood as far as the
// versions share it (version; for Refused also reason and text), so that both sides can name both versions.
FromMember decode_from_member(std::string_view frame);
FromCoordinator decode_from_coordinator(std::string_view frame);

// Collects bytes as they come and hands out whole frames. Take all of them out after each feed: then at most one incomplete
// frame is held. After a ProtocolError the rest of the stream means nothing.
class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t limit = kMaxFirstFrameBytes) : limit_(limit) {}
  void set_limit(std::size_t bytes) { limit_ = bytes; }  // once the other side was welcomed
  void feed(std::span<const std::byte> bytes);
  std::optional<std::string_view> next();  // good until the next feed
  std::size_t held_bytes() const { return buffer_.capacity(); }

 private:
  std::string buffer_;
  std::size_t consumed_ = 0;
  std::size_t limit_;
};

}  // namespace ddprun::rendezvous
