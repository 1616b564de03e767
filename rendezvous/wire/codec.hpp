// The frames of the rendezvous. A frame is one byte with the message type, followed by the fields of fields.hpp in binary. The
// transport adds the length of a frame. The frames are not JSON, because a coordinator may read ten thousand frames per second.
// In addition, every field has a fixed position and a limit, so most invalid byte strings are rejected.
//
// The codec is pure: it only converts between bytes and messages, and the transport owns the sockets. The codec checks all
// limits before it allocates memory. An invalid frame throws ProtocolError, and the caller closes the connection.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// Size limits of a frame before and after the Welcome. After the Welcome, frames may contain values of the workers' store,
// which have up to 16 MiB.
inline constexpr std::size_t kMaxFirstFrameBytes = 64u << 10;
inline constexpr std::size_t kMaxFrameBytes = 18u << 20;

// Size limit of a Hello. The Hello may arrive in one packet with the end of the TLS handshake. So it counts toward the bytes
// that a peer may send before it has proved that it has the token (TransportLimits::bytes_before_token). The handshake itself
// needs less than the remaining kilobyte of that limit.
inline constexpr std::size_t kMaxHelloBytes = 3u << 10;

inline constexpr std::size_t kMaxHostBytes = 255;
inline constexpr std::size_t kMaxRoleBytes = 128;
// limit for texts that are shown to users; encode() truncates longer texts
inline constexpr std::size_t kMaxTextBytes = 4u << 10;

class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns the complete frame of a message. Texts for users are truncated to their limit. Any other field over its limit throws
// ProtocolError. In a Hello, the text of its ending is truncated so that the frame has at most kMaxHelloBytes.
std::string encode(const FromMember& message);
std::string encode(const FromCoordinator& message);

// Returns the message of a complete frame. If a Hello or Refused has a different protocol version, only the fields that exist
// in all versions are read: `protocol`, and for Refused also `reason` and `text`. So the nodes on both ends can report both
// versions to their users.
FromMember decode_from_member(std::string_view frame);
FromCoordinator decode_from_coordinator(std::string_view frame);

}  // namespace ddprun::rendezvous
