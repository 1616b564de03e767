// What the guardian says over the network when its agent is dead: a message that the agent composed, to the other node of a job
// of two, once everything below the guardian is reaped. It makes sure first that no later agent of this machine continues as
// the dead one. guardian.cpp says it; the agent entrusts it by guardian_link.hpp.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

namespace ddprun::guardian {

struct LastWord {
  sockaddr_storage to{};      // a UDP address
  std::uint32_t to_size = 0;  // 0: there is nothing to send
  std::uint32_t size = 0;
  std::array<char, 96> text{};
  std::array<char, 512> record{};  // the path of the agent's record, whose lock has the same name with ".lock"; empty: none
};

// Removes the dead agent's record, unless another agent has it by now: then nothing is sent. Otherwise it repeats the message
// until the other side has sent it back, at most for ten seconds.
void say_last_word(const LastWord& word);

}  // namespace ddprun::guardian
