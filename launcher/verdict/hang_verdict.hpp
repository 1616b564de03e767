// Which rank a hanging round waits for, and how to say it: a process that is stopped or does not answer; else the one that is
// the least far, while others wait for it in a collective. Pure; HangState
// (launcher/decide/hang_state.hpp) asks, and feeds it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/channel/message.hpp"

namespace ddprun {

struct HangLook {
  int rank = 0;
  char process_state = '\0';                    // as in /proc/PID/stat
  bool asked = false;                           // over its channel
  std::optional<channel::Position> position{};  // what it answered
};

struct HangVerdict {
  std::vector<int> culprits;  // ranks, at least one
  // kGuess: nobody is behind the others, as far as it can be seen from here.
  enum class Certainty { kSure, kGuess } certainty = Certainty::kGuess;
  std::string why;  // "is stopped (SIGSTOP, a debugger or a frozen cgroup)"
};

// `looks` is not empty, in the order of the ranks.
HangVerdict judge_hang(std::span<const HangLook> looks);

// Of one worker here that hangs or waits for one that does. Local ranks.
struct HangFinding {
  int rank = 0;
  std::optional<std::string> blame{};  // why it is the one to blame
  std::vector<std::string> evidence{};
};

// "the backward pass of step 18"
std::string describe(const channel::Position& position);

}  // namespace ddprun
