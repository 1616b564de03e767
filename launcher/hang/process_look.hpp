// What the kernel says about a process that hangs, in one line: state, what its main thread waits in, CPU time. For the
// evidence of a hang (hang_inquiry.cpp); reads /proc, which may say less than everything to those without the right.
#pragma once

#include <string>

namespace ddprun {

// "state S (sleeping), 12 threads, 3.2 s of CPU time; the main thread waits in futex_wait_queue (system call futex)". Empty
// when there is no such process.
std::string process_look(long pid);

// The name of a system call on this machine, "system call N" when it is none of the usual.
std::string system_call_name(long number);

}  // namespace ddprun
