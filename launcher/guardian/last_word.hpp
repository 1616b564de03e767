// The death notice that the guardian sends over the network when its agent has died. The agent composes it in advance
// (guardian_link.hpp). In a job of two nodes the guardian sends it to the other node once all its descendants are reaped. It
// first makes sure that no later agent of this machine continues as the dead one. guardian.cpp calls it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

namespace ddprun::guardian {

struct LastWord {
  sockaddr_storage to{};      // a UDP address
  std::uint32_t to_size = 0;  // 0: there is no message to send
  std::uint32_t size = 0;
  std::array<char, 96> text{};
  std::array<char, 512> record{};  // path of the agent's record; its lock file has ".lock" appended; empty: none
};

// Removes the dead agent's record. If another agent has locked the record by now, nothing is sent. Otherwise it repeats the
// message until the other node has sent it back, for at most ten seconds.
void say_last_word(const LastWord& word);

}  // namespace ddprun::guardian
