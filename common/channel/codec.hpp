// Frames of the worker channel: 4 bytes length of the rest (little endian), 4 bytes length of the JSON, the JSON, and raw bytes
// for binary values. Pure: bytes in, messages out; the callers own the sockets. Limits are checked before anything is
// allocated. A frame that violates them, or a known message with a wrong or missing field, throws channel::ProtocolError, and
// the caller closes the channel. A closed channel is no proof of death; the pidfd is. Unknown messages and fields, which a
// newer minor version may have added, are ignored.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/channel/message.hpp"

namespace ddprun::channel {

inline constexpr std::size_t kMaxFrameBytes = 17u << 20;  // including its two lengths
inline constexpr std::size_t kMaxJsonBytes = 1u << 20;    // in a frame
inline constexpr std::size_t kMaxKeyBytes = 4u << 10;     // a key of the store
inline constexpr std::size_t kMaxKeys = 1u << 16;         // in one request
inline constexpr std::size_t kMaxFigures = 100;           // in an evaluation
inline constexpr std::size_t kMaxStepTimes = 100;         // in one message
inline constexpr std::size_t kMaxValueBytes = 16u << 20;  // a value of the store
inline constexpr std::size_t kMaxTextBytes = 64u << 10;   // error messages and paths: longer ones are cut when encoded

class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One complete frame, ready to be written. Invalid UTF-8 is replaced and long text is cut. Keys and values are never changed:
// those over their limit throw ProtocolError.
std::string encode(const FromWorker& message);
std::string encode(const FromAgent& message);

// Collects bytes as they arrive and returns complete messages. Take all messages after each feed: then at most one incomplete
// frame is held. After a ProtocolError the rest of the stream is meaningless.
class Decoder {
 public:
  void feed(std::span<const std::byte> bytes);
  // The next complete message of a known type, or nullopt if more bytes are needed.
  std::optional<FromWorker> next_from_worker();
  std::optional<FromAgent> next_from_agent();

 private:
  struct Frame {  // views into buffer_, valid until the next feed
    std::string_view json;
    std::string_view blob;
  };
  std::optional<Frame> next_frame();
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace ddprun::channel
