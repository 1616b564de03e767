// Reads the resident memory of a process from /proc. The agent reads it only when the job's status is requested.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace ddprun {

// Returns the resident memory in bytes, or 0 if the process has ended. /proc is in memory, so the read never waits for a disk.
inline std::int64_t memory_of_process(std::int64_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  return in >> size >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace ddprun
