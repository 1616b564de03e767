// Checks that both ends of a worker channel (message.hpp) have compatible versions, and describes a mismatch for users. The
// agent checks the first message of each worker and standby.
#pragma once

#include <string>

#include "common/channel/message.hpp"

namespace ddprun::channel {

// Returns true if the major versions are equal. The minor versions may differ.
inline bool is_compatible(const Hello& hello) {
  return hello.protocol == kProtocolMajor;
}

// Returns the message for a user if is_compatible() is false. It contains both versions.
inline std::string version_mismatch(const Hello& hello) {
  const auto version = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  return (hello.version.empty() ? "it" : hello.version) + " uses version " + version(hello.protocol, hello.minor) +
         " of the worker channel, this ddprun uses version " + version(kProtocolMajor, kProtocolMinor) +
         ": install both from the same release";
}

}  // namespace ddprun::channel
