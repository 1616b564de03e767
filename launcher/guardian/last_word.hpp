// What the guardian says over the network when its agent is dead: a message that the agent composed, to the other node of a job
// of two, once everything below the guardian is reaped. It makes sure first that no later agent of this machine goes on as the
// dead one. guardian.cpp says it; the agent entrusts it by guardian_link.hpp.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

namespace ddprun::guardian {

struct LastWord {
  sockaddr_storage to{};      // of datagrams
  std::uint32_t to_size = 0;  // 0: there is nothing to say
  std::uint32_t size = 0;
  std::array<char, 96> text{};
  std::array<char, 512>
      record{};  // a path: what the agent remembers itself by; beside it is its lock, with ".lock"; empty: none
};

// Takes the dead agent's record away, unless another agent has it by now: then nothing is said. Says the word until the other
// side has sent it back, or for ten seconds.
void say_last_word(const LastWord& word);

}  // namespace ddprun::guardian
