// Frames of the rendezvous: 1 byte type, then the fields of fields.hpp in binary. The transport marks the end of a frame. They
// are not JSON, since a coordinator reads ten thousand of them per second. Also, a format in which every field has a place and
// a limit leaves little room for garbage. Pure: bytes in, messages out; the secure transport owns the sockets. Limits are
// checked before anything is allocated. A frame that violates them throws ProtocolError, and the caller closes the connection.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// The limits before and after the welcome (values of the workers' store have up to 16 MiB).
inline constexpr std::size_t kMaxFirstFrameBytes = 64u << 10;
inline constexpr std::size_t kMaxFrameBytes = 18u << 20;

// A Hello may arrive in one packet with the end of the TLS handshake, so it counts among the bytes that a peer may send before
// its token is proven (TransportLimits::bytes_before_token). The handshake itself needs less than the remaining kilobyte.
inline constexpr std::size_t kMaxHelloBytes = 3u << 10;

inline constexpr std::size_t kMaxHostBytes = 255;
inline constexpr std::size_t kMaxRoleBytes = 128;
inline constexpr std::size_t kMaxTextBytes = 4u << 10;  // messages for users; longer ones are cut when encoded

class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One complete frame. Messages for users are cut to their limit; anything else over its limit throws ProtocolError. A Hello has
// at most kMaxHelloBytes: the text of its ending is cut.
std::string encode(const FromMember& message);
std::string encode(const FromCoordinator& message);

// The message of a complete frame. From a Hello or Refused of another protocol version it reads only the fields common to all
// versions (version; for Refused also reason and text), so that both sides can report both versions.
FromMember decode_from_member(std::string_view frame);
FromCoordinator decode_from_coordinator(std::string_view frame);

}  // namespace ddprun::rendezvous
