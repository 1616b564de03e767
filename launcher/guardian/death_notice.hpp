// The death notice: a UDP message with which the guardian reports that its agent and all its workers have ended. The agent
// prepares it in advance (guardian_link.hpp). A job of two nodes needs it: after the notice, the other node can continue alone.
// The guardian first removes the dead agent's rendezvous record, so that no later agent on this machine can resume from it.
// guardian.cpp sends the notice after all descendants are reaped.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

namespace ddprun::guardian {

struct DeathNotice {
  sockaddr_storage to{};      // a UDP address
  std::uint32_t to_size = 0;  // 0: no message must be sent
  std::uint32_t size = 0;
  std::array<char, 96> text{};
  std::array<char, 512> record{};  // path of the agent's record, or empty; the path of its lock file has ".lock" appended
};

// Removes the dead agent's record and sends the message repeatedly until the other node has sent it back, for at most ten
// seconds. Sends nothing if another agent has already locked the record.
void send_death_notice(const DeathNotice& notice);

}  // namespace ddprun::guardian
