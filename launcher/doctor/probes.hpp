// Examines the subjects of the doctor (programs, names, limits, folders, GPUs, data) in child processes. All child processes
// run at the same time, each with a time limit.
//
// On a machine with a fault, a call may never return: NVML hangs in a broken driver, a name server is silent, a file server is
// gone. A system call that hangs cannot be interrupted, and a thread cannot be ended. So each subject runs in its own child
// process. The child sends its checks through a pipe, as JSON lines. A child that exceeds its limit is killed, and a check
// that was prepared in advance replaces its checks. If a child cannot even be killed (uninterruptible sleep), the doctor ends
// without it. If a child crashes, only its checks are lost.
//
// The cost is a fork of a small process for each subject, about a millisecond.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/doctor/verdicts/check.hpp"

namespace ddprun::doctor {

struct Probe {
  std::string name;                 // the name of a check that reports a failure of the probe itself
  std::function<Checks()> examine;  // called in the child process
  std::chrono::milliseconds limit;  // time limit, measured from `start`, the argument of run_probes()
  Check late;                       // replaces the checks if the limit is exceeded
};

// Returns the checks of all probes, in the order of `probes`. The caller must have a single thread. A probe may call
// run_probes() too.
Checks run_probes(const std::vector<Probe>& probes, std::chrono::steady_clock::time_point start);

}  // namespace ddprun::doctor
