// Frames of the worker channel: 4 bytes length of the rest (little endian), 4 bytes length of the JSON, the JSON, and raw bytes
// for binary values. Pure: bytes in, messages out; the callers own the sockets. Limits are checked before anything is
// allocated; a frame that breaks them, or a known message with a wrong or missing field, throws channel::ProtocolError and the
// caller closes the channel (a closed channel is no proof of death, the pidfd is). What a newer minor version may have added,
// messages and fields that are not known here, is passed over in silence.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/channel/message.hpp"

namespace ddprun::channel {

inline constexpr std::size_t kMaxFrameBytes = 17u << 20;  // with its two lengths
inline constexpr std::size_t kMaxJsonBytes = 1u << 20;    // of a frame
inline constexpr std::size_t kMaxKeyBytes = 4u << 10;     // of a store key
inline constexpr std::size_t kMaxKeys = 1u << 16;         // of one request
inline constexpr std::size_t kMaxFigures = 100;           // of an evaluation
inline constexpr std::size_t kMaxValueBytes = 16u << 20;  // of a store value
inline constexpr std::size_t kMaxTextBytes = 64u << 10;   // error messages, paths: longer ones are cut when encoded

class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One whole frame, ready to be written. Text that is not UTF-8 is mended and long text cut; keys and values travel as they are,
// and throw ProtocolError when they are over their limit.
std::string encode(const FromWorker& message);
std::string encode(const FromAgent& message);

// Collects bytes as they come and hands out whole messages. Take all messages out after each feed: then at most one incomplete
// frame is held. After a ProtocolError the rest of the stream means nothing.
class Decoder {
 public:
  void feed(std::span<const std::byte> bytes);
  // Next whole message of that direction that is known, or nullopt when more bytes are needed.
  std::optional<FromWorker> next_from_worker();
  std::optional<FromAgent> next_from_agent();

 private:
  struct Frame {  // views into buffer_, good until the next feed
    std::string_view json;
    std::string_view blob;
  };
  std::optional<Frame> next_frame();
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace ddprun::channel
