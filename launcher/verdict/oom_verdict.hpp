// Whether the kernel killed a worker for lack of memory, and how certain that is, as a pure function of the counters
// (memory_evidence.hpp). The agent asks it for every worker that failed; people read its text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/events/memory_evidence.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

struct OomVerdict {
  enum class Proof { kNone, kSuspected, kProven } proof = Proof::kNone;
  std::string message;   // one line for a proven or suspected OOM kill
  std::string evidence;  // the figures, also when memory was not the cause; empty if nothing died of SIGKILL or an OOM kill
};

OomVerdict judge_memory(const MemoryEvidence& evidence, const ExitStatus& status);

// Whether a line of a script's error says that an allocation failed: Python's MemoryError, PyTorch's OutOfMemoryError and the
// like, of which the kernel knows nothing.
bool says_out_of_memory(std::string_view line);
// The amount that the line asks for ("Tried to allocate 2.00 GiB"), as a number to compare with another failure's; 0: the line
// names none. A program that asks for less than before has changed something.
std::uint16_t memory_asked_in(std::string_view line);

// "512 MiB", "1.5 GiB", "900 B"
std::string format_bytes(std::int64_t bytes);

}  // namespace ddprun
