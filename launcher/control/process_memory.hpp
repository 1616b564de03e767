// How much memory of a process is in RAM, from /proc. The agent reads it when somebody asks for the job's status.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace ddprun {

// In bytes; 0 when the process is gone. Reading it waits for no disk.
inline std::int64_t memory_of_process(std::int64_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  return in >> size >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace ddprun
