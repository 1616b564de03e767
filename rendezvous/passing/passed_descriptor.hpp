// Passes a file descriptor and some bytes to another process on the same machine in one message (SCM_RIGHTS over a
// SOCK_SEQPACKET Unix socket). Agents use it to pass connections and listening ports to each other. They also use it to pass
// the connections of scripts to the store server.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/system/descriptor.hpp"

namespace ddprun {

inline constexpr std::size_t kMaxPassedBytes = 64 << 10;

// Sends without blocking. Returns false and sets errno on failure. EAGAIN means that the socket buffer is full.
bool pass_descriptor(int to, int fd, std::string_view bytes);

struct PassedDescriptor {
  Descriptor descriptor;  // -1 if the message contained no descriptor, or if this process cannot have more descriptors
  std::string bytes;
};

// Receives without blocking. If there is no message, returns nullopt and sets errno. errno is 0 if the other end has closed the
// socket.
std::optional<PassedDescriptor> receive_passed_descriptor(int from);

}  // namespace ddprun
