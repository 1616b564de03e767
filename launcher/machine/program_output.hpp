// What a program prints, within limits of time and of size. A worker program is asked so what it is (launcher/own_worker). This
// thread waits, so it is for the time before a job begins.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace ddprun {

struct ProgramOutput {
  enum class End { kExited, kSignalled, kTooLate, kTooMuch, kNotStarted };
  End end = End::kExited;
  int number = 0;          // the exit code, the signal, or the errno of kNotStarted
  std::string text;        // its standard output
  std::string complaints;  // its standard error, of which the end is cut off
};

struct OutputLimits {
  std::chrono::milliseconds time{60'000};
  std::size_t bytes = std::size_t{1} << 20;  // of standard output
};

// Runs command[0], which has to be a path, in a process group of its own with nothing to read. Past a limit the whole group is
// killed. When the program has ended, what other processes of it print later is not awaited.
ProgramOutput output_of(const std::vector<std::string>& command, const OutputLimits& limits = {});

}  // namespace ddprun
