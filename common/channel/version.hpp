// Checks that both ends of a worker channel have the same version (message.hpp), and explains a difference to users. The agent
// checks the first message of each worker and standby.
#pragma once

#include <string>

#include "common/channel/message.hpp"

namespace ddprun::channel {

// A different minor version is compatible.
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
