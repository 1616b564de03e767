// Where a worker program of a user's own failed: functions and lines on stderr, which is the worker's log and whose end is in
// the report. Without it a crash in C++ leaves an empty log, and PyTorch's message of a wrong shape names no place.
//
// Lines come from addr2line (binutils) and the program's debug information, which add_ddprun_worker() asks the compiler for
// (-g1). Where either is missing, the addresses are left. Frames of LibTorch are left out when the program's own are known.
#pragma once

#include <exception>

namespace ddprun::trainer {

// Call once, in main(): from then on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes its call stack before the
// process ends by that signal.
void write_stack_on_crash();

// Of an error that LibTorch threw: the program's own functions from which it came. Nothing for any other error.
void write_stack_of(const std::exception_ptr& error);

}  // namespace ddprun::trainer
