// Describes a hanging process in one line: its state, where its main thread waits, and its CPU time. The line is part of the
// evidence of a hang (hang_monitor.cpp). The line is read from /proc, which shows less to a process without ptrace permission.
#pragma once

#include <string>

namespace ddprun {

// Returns a text such as "state S (sleeping), 12 threads, 3.2 s of CPU time; the main thread waits in futex_wait_queue (system
// call futex)". The text is empty if the process does not exist.
std::string process_summary(long pid);

// Returns the name of a system call on this machine; "system call N" for an unusual one.
std::string system_call_name(long number);

}  // namespace ddprun
