// The exit status of a process.
#pragma once

#include <csignal>
#include <string>

namespace ddprun {

// A process ends with an exit code or by a signal.
struct ExitStatus {
  int code = 0;    // the argument of exit(); meaningless if signal is not 0
  int signal = 0;  // the signal that killed it; 0: it exited
  bool core_dumped = false;
  bool operator==(const ExitStatus&) const = default;
  bool ok() const { return code == 0 && signal == 0; }
  int as_exit_code() const { return signal != 0 ? 128 + signal : code; }  // decision 4
  // True for SIGKILL, which the OOM killer sends. A wrapper whose child was killed exits with 137; no other code indicates a
  // SIGKILL.
  bool by_sigkill() const { return as_exit_code() == 128 + SIGKILL; }
};

// "exit code 3", "signal 9 (SIGKILL)"
std::string describe(const ExitStatus& status);

}  // namespace ddprun
