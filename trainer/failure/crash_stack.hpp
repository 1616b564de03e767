// Writes to stderr where a user's worker program failed: the functions and lines of its call stack. stderr is the worker's log,
// and the failure report quotes the last lines of the log. Without the call stack, a crash in C++ leaves an empty log, and
// PyTorch's message about a wrong shape does not name the line of code.
//
// The line numbers come from addr2line (binutils) and the program's debug information. The CMake function add_ddprun_worker()
// compiles with -g1 for this purpose. Without addr2line or debug information, the output contains addresses. Frames of LibTorch
// are omitted if frames of the program are known.
#pragma once

#include <exception>

namespace ddprun::trainer {

// Call this once, in main(). From then on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes its call stack before the
// signal ends the process.
void write_stack_on_crash();

// If `error` is a c10::Error, writes the program's own functions on the call stack at which it was thrown. Does nothing for any
// other error.
void write_stack_of(const std::exception_ptr& error);

}  // namespace ddprun::trainer
