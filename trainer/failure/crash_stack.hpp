// Shows on stderr where a user's worker program failed: functions and lines. stderr is the worker's log, and the report has its
// end. Without this a crash in C++ leaves an empty log, and PyTorch's message about a wrong shape names no place.
//
// Lines come from addr2line (binutils) and the program's debug information; add_ddprun_worker() compiles with -g1 for it. If
// either is missing, the output has addresses. Frames of LibTorch are omitted if the program's own are known.
#pragma once

#include <exception>

namespace ddprun::trainer {

// Call once, in main(). From then on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes its call stack before the signal
// ends the process.
void write_stack_on_crash();

// For an error of LibTorch, writes the program's own functions on its call stack. Does nothing for any other error.
void write_stack_of(const std::exception_ptr& error);

}  // namespace ddprun::trainer
