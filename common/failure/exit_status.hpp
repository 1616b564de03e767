// The exit status of a process: an exit code or a signal.
#pragma once

#include <csignal>
#include <string>

namespace ddprun {

// A process ends either with an exit code or by a signal.
struct ExitStatus {
  int code = 0;    // the argument of exit(); valid if signal is 0
  int signal = 0;  // the signal that killed the process; 0: the process exited
  bool core_dumped = false;
  bool operator==(const ExitStatus&) const = default;
  bool ok() const { return code == 0 && signal == 0; }
  int as_exit_code() const { return signal != 0 ? 128 + signal : code; }  // decision 4
  // Returns true if the process was ended by SIGKILL, the signal of the OOM killer. Also returns true for exit code 137,
  // because a wrapper exits with 137 if SIGKILL ended its child.
  bool by_sigkill() const { return as_exit_code() == 128 + SIGKILL; }
};

// Returns the status as text, such as "exit code 3" or "signal 9 (SIGKILL)".
std::string describe(const ExitStatus& status);

}  // namespace ddprun
