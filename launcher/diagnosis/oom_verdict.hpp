// Decides whether the kernel's OOM killer killed a worker, and how certain that is. The functions are pure: their input is
// counters and text.
//
// The OOM killer sends SIGKILL. The worker cannot catch it, so it reports nothing, and `kill -9` leaves the same exit status.
// The difference matters, because a worker that ran out of memory does so again after a restart: two kills by the kernel in a
// row end a job that runs a script (launcher/restart_policy/restart_policy.hpp). A false verdict "out of memory" ends a job
// that a restart would have saved. If a kill for memory is not recognized, a hopeless round is repeated. The user then looks
// for the cause in the wrong place.
//
// No single counter is enough, but the kernel counts its kills in several places, and each count proves something different.
// The guardian reads the counters when it reaps the worker (memory_evidence.hpp):
//
//   a kill in the worker's own cgroup             proven: the kernel killed the worker or a child of it
//   the kernel's log names the process            proven
//   no kill in the worker's own cgroup            not out of memory, whatever the wider counters show
//   a kill in the job's cgroup                    proven if the worker has no separate cgroup and died of SIGKILL
//   a kill on the machine, 98 % of a limit used,  suspected if the worker has no separate cgroup and died of SIGKILL
//   or less than 5 % of the memory available
//
// Example: the kernel kills another program for lack of memory, while a user kills our worker with SIGKILL. The machine's
// counter rises. The worker's own counter does not, so the kernel did not kill it. If the worker had no separate cgroup, an
// OOM kill would be suspected. A suspicion is reported with its numbers, but the restart policy does not count it as out of
// memory.
//
// Cost: a restart waits while the guardian reads files. So it reads them only after SIGKILL, or when the worker's own counter
// has risen. It skips the kernel's log, which takes milliseconds, if the machine's counter is unchanged
// (docs/internals/decisions/guardian/kernel-log-only-after-a-kill.md). A worker gets its own cgroup 0.2 s after its start, so
// a kill before that time increases only the wider counters.
//
// The kernel does not count refused allocations: only the text of the script's error shows them. A script may halve its batch
// after each failure, so the requested amounts are compared as well. We tried a rule that ends the job at the second failure,
// whatever the amount. Under this rule a script that needed three attempts failed. Only 16 bits of a hash of the amount are
// kept. So a job on many machines needs less than 1,024 bytes for this
// (docs/internals/decisions/launcher/script-out-of-memory.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/events/memory_evidence.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

struct OomVerdict {
  enum class Proof { kNone, kSuspected, kProven } proof = Proof::kNone;
  std::string message;  // one line for users; empty if there is no proof and no suspicion
  // Memory values. They are set after a SIGKILL or a detected OOM kill, even if memory was not the cause.
  std::string evidence;
};

// Evaluates the evidence about one worker. The agent calls this for every worker that ends.
OomVerdict judge_memory(const MemoryEvidence& evidence, const ExitStatus& status);

// Returns true if a line of a script's error reports a refused allocation, such as Python's MemoryError or PyTorch's
// OutOfMemoryError.
bool reports_out_of_memory(std::string_view line);
// Returns a hash of the amount in the line ("Tried to allocate 2.00 GiB"), so that two failures can be compared. Returns 0 if
// the line has no amount.
std::uint16_t memory_requested_in(std::string_view line);

// Returns a text such as "512 MiB", "1.5 GiB" or "900 B".
std::string format_bytes(std::int64_t bytes);

}  // namespace ddprun
