// Checks of ddprun's own invariants, such as "a list is not empty". They are active in release builds too, independent of
// NDEBUG.
//
// A failed check is a bug in ddprun. It throws an InternalError with file and line, and never aborts the process. In the agent,
// the error stops the workers, and the job ends with exit code 89 (launcher/agent/internal_error_handler.hpp). The guardian
// (launcher/guardian) logs the error to stderr and continues. A worker reports the error and exits with 89.
//
// Do not use these checks for errors of users, workers or other nodes: those have other exception types (error.hpp).
#pragma once

#include <cstddef>

namespace ddprun {

// Throws InternalError. Call this in code that must be unreachable, such as the end of a switch. `sentence` describes the bug,
// such as "the round has no worker that failed".
[[noreturn]] void check_failed(const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Throws InternalError if `holds` is false. `sentence` is the error message: it describes the bug.
inline void check(bool holds, const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!holds) [[unlikely]] {
    check_failed(sentence, file, line);
  }
}

// Dereferences a pointer, a smart pointer or an optional. Throws InternalError if it is empty.
template <class Maybe>
auto& existing(Maybe& maybe, const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(static_cast<bool>(maybe), sentence, file, line);
  return *maybe;
}

template <class T>
T& existing(T* pointer, const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(pointer != nullptr, sentence, file, line);
  return *pointer;
}

// Returns the first element of a container. Throws InternalError if the container is empty.
template <class Container>
auto& first_of(Container& container, const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(!container.empty(), sentence, file, line);
  return container.front();
}

// Returns the element of the worker with local rank `rank`. `by_rank` has one element for each worker of the node. Throws
// InternalError if the rank is out of range.
template <class Container>
auto& of_rank(Container& by_rank, int rank, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(rank >= 0 && static_cast<std::size_t>(rank) < by_rank.size(),
        "expected a local rank below the number of workers on this node", file, line);
  return by_rank[static_cast<std::size_t>(rank)];
}

}  // namespace ddprun
