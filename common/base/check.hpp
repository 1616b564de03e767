// Checks of ddprun's own invariants: "at least one", "only in this phase". They stay in release builds, independent of NDEBUG.
// A failed check is a bug in ddprun, so it throws an InternalError with file and line, and never aborts. In the agent the
// workers then stop, and the job ends with 89 (launcher/agent/own_failure.hpp). The guardian logs it to stderr and continues. A
// worker reports it and ends with 89. Errors of users, workers or other nodes are not for checks; they have other error types.
#pragma once

#include <cstddef>

namespace ddprun {

// For the unreachable end of a switch. `sentence` describes the problem: "the round has no worker that failed".
[[noreturn]] void check_failed(const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE());

// `sentence` describes the problem if the check fails.
inline void check(bool holds, const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!holds) [[unlikely]] {
    check_failed(sentence, file, line);
  }
}

// Dereferences an optional, an owner or a pointer that must not be empty.
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

// The first element of a container that must not be empty.
template <class Container>
auto& first_of(Container& container, const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(!container.empty(), sentence, file, line);
  return container.front();
}

// The element of a local rank, in a container with one entry for each worker of the node.
template <class Container>
auto& of_rank(Container& by_rank, int rank, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(rank >= 0 && static_cast<std::size_t>(rank) < by_rank.size(), "this node has no worker of that local rank", file, line);
  return by_rank[static_cast<std::size_t>(rank)];
}

}  // namespace ddprun
