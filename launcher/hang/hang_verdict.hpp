// Finds and describes the rank that a hanging round waits for. The culprit is a process that is stopped or does not answer. If
// there is none, it is the rank that is furthest behind, while others wait for it in a collective. The code is pure (no I/O, no
// clock). HangState (launcher/hang/hang_state.hpp) calls it.
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
  bool queried = false;                         // the worker was queried over its channel
  std::optional<channel::Position> position{};  // the worker's answer
};

struct HangVerdict {
  std::vector<int> culprits;  // ranks to blame; at least one
  // kGuess: no rank is behind the others, according to the positions on this node
  enum class Certainty { kSure, kGuess } certainty = Certainty::kGuess;
  std::string why;  // such as "is stopped (SIGSTOP, a debugger or a frozen cgroup)"
};

// `observations` must be sorted by rank and must not be empty.
HangVerdict judge_hang(std::span<const HangObservation> observations);

// A worker of this node that hangs, or that waits for a hanging worker. `rank` is its local rank.
struct HangFinding {
  int rank = 0;
  std::optional<std::string> blame{};  // reason why this rank is to blame; nullopt if it is not
  std::vector<std::string> evidence{};
};

// Describes the position of a worker, such as "the backward pass of step 18".
std::string describe(const channel::Position& position);

}  // namespace ddprun
