// Whether the two ends of a worker channel mean the same by what they say (message.hpp), and what to tell people if not. The
// agent asks at the first message of a worker or standby.
#pragma once

#include <string>

#include "common/channel/message.hpp"

namespace ddprun::channel {

// Minor versions get along.
inline bool speaks_our_version(const Hello& hello) {
  return hello.protocol == kProtocolMajor;
}

// "ddptrain 9.0 speaks version 2.0 of the worker channel, and this ddprun 1.1: install both from one release"
inline std::string other_version_of(const Hello& hello) {
  const auto version = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  return (hello.version.empty() ? "it" : hello.version) + " speaks version " + version(hello.protocol, hello.minor) +
         " of the worker channel, and this ddprun " + version(kProtocolMajor, kProtocolMinor) +
         ": install both from one release";
}

}  // namespace ddprun::channel
