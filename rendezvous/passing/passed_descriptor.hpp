// Passes a descriptor and some bytes to another process of the machine, in one message: SCM_RIGHTS over a SOCK_SEQPACKET Unix
// socket. Agents use it to pass connections and listening ports to each other, and clients to the scripts' store.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/system/descriptor.hpp"

namespace ddprun {

inline constexpr std::size_t kMostPassedBytes = 64 << 10;

// Does not block. Returns false with errno set; EAGAIN if the socket is full of messages that the receiver has not read.
bool pass_descriptor(int to, int fd, std::string_view bytes);

struct PassedDescriptor {
  Descriptor descriptor;  // -1 if the message had none, or if this process has no free descriptor
  std::string bytes;
};

// Does not block. Returns nullopt with errno set if there is no message; errno 0: the other end is closed.
std::optional<PassedDescriptor> receive_passed_descriptor(int from);

}  // namespace ddprun
