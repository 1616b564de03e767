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

struct HangObservation {
  int rank = 0;
  char process_state = '\0';                    // its letter in /proc/PID/stat
  bool asked = false;                           // over the worker's channel
  std::optional<channel::Position> position{};  // the worker's answer
};

struct HangVerdict {
  std::vector<int> culprits;  // ranks, at least one
  // kGuess: no rank is behind the others, as far as this node can see.
  enum class Certainty { kSure, kGuess } certainty = Certainty::kGuess;
  std::string why;  // "is stopped (SIGSTOP, a debugger or a frozen cgroup)"
};

// `observations` is in the order of the ranks and not empty.
HangVerdict judge_hang(std::span<const HangObservation> observations);

// A worker of this node that hangs, or waits for one that does. The numbers are local ranks.
struct HangFinding {
  int rank = 0;
  std::optional<std::string> blame{};  // set for the rank to blame: the reason
  std::vector<std::string> evidence{};
};

// Says where a worker is: "the backward pass of step 18".
std::string describe(const channel::Position& position);

}  // namespace ddprun
