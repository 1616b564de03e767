// Runs a program and returns its output, within limits of time and size. launcher/custom_worker uses it to query a worker
// program. The calling thread blocks, so use it only before a job starts.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace ddprun {

struct ProgramOutput {
  enum class End { kExited, kSignalled, kTimedOut, kOutputTooLarge, kNotStarted };
  End end = End::kExited;
  int number = 0;            // the exit code, the signal, or the errno of kNotStarted
  std::string text;          // the program's standard output
  std::string error_output;  // the program's standard error, cut off at a limit
};

struct OutputLimits {
  std::chrono::milliseconds time{60'000};
  std::size_t bytes = std::size_t{1} << 20;  // limit for standard output
};

// Runs command[0], which must be a path, in its own process group and with empty standard input. If a limit is exceeded, the
// whole group is killed. The function returns when the program has ended, and does not wait for output of its children.
ProgramOutput output_of(const std::vector<std::string>& command, const OutputLimits& limits = {});

}  // namespace ddprun
