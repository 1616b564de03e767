// Finds the rank that a hanging round waits for, and describes it: a process that is stopped or does not answer. Otherwise it
// is the rank that is furthest behind, while others wait for it in a collective. Pure; HangState
// (launcher/decide/hang_state.hpp) calls it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/channel/message.hpp"

namespace ddprun {

struct HangObservation {
  int rank = 0;
  char process_state = '\0';                    // process state letter in /proc/PID/stat
  bool asked = false;                           // the worker was queried over its channel
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

// A worker of this node that hangs, or that waits for a hanging one. Ranks are local.
struct HangFinding {
  int rank = 0;
  std::optional<std::string> blame{};  // set for the rank to blame: the reason
  std::vector<std::string> evidence{};
};

// Describes the position of a worker: "the backward pass of step 18".
std::string describe(const channel::Position& position);

}  // namespace ddprun
