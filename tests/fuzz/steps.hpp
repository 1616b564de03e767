// Interprets the bytes of a fuzzer as a script for a state machine. Each step has a link (a connection to a node), a pause
// and an event. The event is an opened link, a closed link, a received frame, a timer tick, or a local event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

struct Step {
  LinkId link = 0;
  milliseconds pause{};
  enum class Kind { kOpen, kClose, kFrame, kTick, kLocal } kind{};
  std::string_view frame{};  // the frame without its length field; it starts with the message type
};

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool next(Step& step) {
    if (rest_.size() < 4) return false;
    step.kind = static_cast<Step::Kind>(byte(0) % 5);
    step.link = LinkId{1} + byte(1) % 6;
    step.pause = milliseconds(byte(2) * byte(2) / 8);  // up to 8 s
    const std::size_t length = step.kind == Step::Kind::kFrame ? byte(3) : 0;
    rest_.remove_prefix(4);
    step.frame = rest_.substr(0, length);
    rest_.remove_prefix(step.frame.size());
    return true;
  }

 private:
  unsigned byte(std::size_t i) const { return static_cast<unsigned char>(rest_[i]); }
  std::string_view rest_;
};

}  // namespace ddprun::rendezvous
