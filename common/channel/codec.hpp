// The frames of the worker channel. A frame consists of the number of bytes that follow (4 bytes, little endian), the length
// of the JSON (4 bytes), the JSON, and the bytes of binary values. The codec is pure: it converts between bytes and messages,
// and the callers own the sockets. The codec checks all limits before it allocates memory.
//
// A frame over a limit, or a known message with a wrong or missing field, throws channel::ProtocolError, and the caller closes
// the channel. A closed channel does not prove that the worker has ended; only the worker's pidfd does. Unknown messages and
// fields are ignored, because a newer minor version may have added them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/channel/message.hpp"

namespace ddprun::channel {

inline constexpr std::size_t kMaxFrameBytes = 17u << 20;  // maximum size of a frame, including its two length fields
inline constexpr std::size_t kMaxJsonBytes = 1u << 20;    // maximum size of the JSON in a frame
inline constexpr std::size_t kMaxKeyBytes = 4u << 10;     // maximum size of a key of the store
inline constexpr std::size_t kMaxKeys = 1u << 16;         // maximum number of keys in one request
inline constexpr std::size_t kMaxMetrics = 100;           // maximum number of metrics in one message
inline constexpr std::size_t kMaxStepTimes = 100;         // maximum number of step times in one message
inline constexpr std::size_t kMaxValueBytes = 16u << 20;  // maximum size of a value of the store
// maximum size of error messages and paths; encode() truncates longer ones
inline constexpr std::size_t kMaxTextBytes = 64u << 10;

class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns the complete frame of a message. Invalid UTF-8 is replaced, and long texts are truncated. Keys and values of the
// store are never changed: if one of them exceeds its limit, ProtocolError is thrown.
std::string encode(const FromWorker& message);
std::string encode(const FromAgent& message);

// Collects bytes as they arrive, and returns complete messages. After each feed(), the caller must call next_from_worker() or
// next_from_agent() until it returns nullopt, so that the buffer keeps at most one incomplete frame. After a ProtocolError the
// rest of the stream cannot be decoded.
class Decoder {
 public:
  void feed(std::span<const std::byte> bytes);
  // Returns the next complete message of a known type; nullopt if more bytes are needed.
  std::optional<FromWorker> next_from_worker();
  std::optional<FromAgent> next_from_agent();

 private:
  struct Frame {  // views into buffer_, valid until the next feed()
    std::string_view json;
    std::string_view blob;
  };
  std::optional<Frame> next_frame();
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace ddprun::channel
