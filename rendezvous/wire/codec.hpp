// Frames of the rendezvous: 1 byte type, then the fields of fields.hpp in binary. The transport knows where a frame ends.
// Binary and not JSON: a coordinator reads ten thousand of them a second, and every field has a place and a limit, which leaves
// little to guess for who sends garbage. Pure: bytes in, messages out; the secure transport owns the sockets. Limits are
// checked before anything is allocated; a frame that breaks them throws ProtocolError, and the caller closes the connection.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// Before the other side has been welcomed, and afterwards (values of the workers' store are up to 16 MiB).
inline constexpr std::size_t kMaxFirstFrameBytes = 64u << 10;
inline constexpr std::size_t kMaxFrameBytes = 18u << 20;

inline constexpr std::size_t kMaxHostBytes = 255;
inline constexpr std::size_t kMaxRoleBytes = 128;
inline constexpr std::size_t kMaxTextBytes = 4u << 10;  // for people; longer ones are cut when encoded
inline constexpr std::size_t kMaxJobBytes = 4u << 20;   // config, arguments and options for `ddprun join`

class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One whole frame. Texts for people are cut to their limit; anything else over its limit throws ProtocolError.
std::string encode(const FromMember& message);
std::string encode(const FromCoordinator& message);

// The message of a whole frame. A Hello or Refused of another protocol version is understood as far as the
// versions share it (version; for Refused also reason and text), so that both sides can name both versions.
FromMember decode_from_member(std::string_view frame);
FromCoordinator decode_from_coordinator(std::string_view frame);

}  // namespace ddprun::rendezvous
