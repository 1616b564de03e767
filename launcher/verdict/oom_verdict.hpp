// Whether a worker that ended was killed by the kernel for lack of memory, and how sure that is: a pure function of what the
// counters said (memory_evidence.hpp). The agent asks it for every worker that ended badly; its text is what people read.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/events/memory_evidence.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

struct OomVerdict {
  enum class Proof { kNone, kSuspected, kProven } proof = Proof::kNone;
  std::string message;   // proven or suspected: the one line that names it
  std::string evidence;  // the numbers, also when it was not memory; empty when nobody looked
};

OomVerdict judge_memory(const MemoryEvidence& evidence, const ExitStatus& status);

// "512 MiB", "1.5 GiB", "900 B"
std::string format_bytes(std::int64_t bytes);

}  // namespace ddprun
