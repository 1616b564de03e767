// A descriptor with some bytes, as one message between two processes of a machine: SCM_RIGHTS over a Unix socket of the kind
// SOCK_SEQPACKET. Agents pass each other connections and listening ports in this way, and pass the scripts' store its clients.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/system/descriptor.hpp"

namespace ddprun {

inline constexpr std::size_t kMostPassedBytes = 64 << 10;

// Returns false with errno set: EAGAIN if the receiver has not read enough of the earlier messages.
bool pass_descriptor(int to, int fd, std::string_view bytes);

struct PassedDescriptor {
  Descriptor descriptor;  // -1: this process had no descriptor left for it
  std::string bytes;
};

// nullopt with errno set: no message; errno 0: the other end is closed.
std::optional<PassedDescriptor> receive_passed_descriptor(int from);

}  // namespace ddprun
