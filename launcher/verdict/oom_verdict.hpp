// Whether a worker that ended was killed by the kernel for lack of memory, and how sure that is: a pure function of what the
// counters said (memory_evidence.hpp). The agent asks it for every worker that ended badly; its text is what people read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/events/memory_evidence.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

struct OomVerdict {
  enum class Proof { kNone, kSuspected, kProven } proof = Proof::kNone;
  std::string message;   // proven or suspected: the one line that names it
  std::string evidence;  // the numbers, also when it was not memory; empty when nobody looked
};

OomVerdict judge_memory(const MemoryEvidence& evidence, const ExitStatus& status);

// Whether a line of a script's error says that memory was not to be had: Python's MemoryError, PyTorch's OutOfMemoryError and
// their like, which the kernel knows nothing of.
bool says_out_of_memory(std::string_view line);
// What was asked for in that line ("Tried to allocate 2.00 GiB"), as a number to compare with that of another failure; 0: the
// line does not say. A program that asks for less than before has changed something.
std::uint16_t memory_asked_in(std::string_view line);

// "512 MiB", "1.5 GiB", "900 B"
std::string format_bytes(std::int64_t bytes);

}  // namespace ddprun
