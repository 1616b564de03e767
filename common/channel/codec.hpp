// Frames of the worker channel: 4 bytes length of the rest (little endian), 4 bytes length of the JSON, the JSON, and raw bytes
// for binary values. Pure: bytes in, messages out; the callers own the sockets. Limits are checked before anything is
// allocated; a frame that breaks them, or JSON that is not a known message, throws channel::ProtocolError and the caller
// closes the channel (a closed channel is no proof of death, the pidfd is).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "common/channel/message.hpp"

namespace ddprun::channel {

inline constexpr std::size_t kMaxFrameBytes = 17u << 20;

class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One whole frame, ready to be written.
std::string encode(const FromWorker& message);
std::string encode(const FromAgent& message);

// Collects bytes as they come and hands out whole messages. Holds at most one incomplete frame.
class Decoder {
 public:
  void feed(std::span<const std::byte> bytes);
  // Next whole message of that direction, or nullopt when more bytes are needed.
  std::optional<FromWorker> next_from_worker();
  std::optional<FromAgent> next_from_agent();

 private:
  struct Frame {
    std::string json;
    std::string blob;
  };
  std::optional<Frame> next_frame();
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace ddprun::channel
