// Checks of what must hold by ddprun's own rules: "at least one", "only in this phase". They stay in release builds, whatever
// NDEBUG says. One that does not hold is a bug of ours, so it throws an InternalError that names file and line, and never
// aborts. In the agent the workers then stop, and the job ends with 89 (launcher/agent/own_failure.hpp). The guardian
// says it on stderr and continues. A worker reports it and ends with 89. What users, workers or other nodes may do wrong is no
// matter of checks; it has errors of its own.
#pragma once

#include <cstddef>

namespace ddprun {

// For the end of a switch that nobody reaches. `sentence` says what was found: "the round has no worker that failed".
[[noreturn]] void check_failed(const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE());

// `sentence` says what is wrong when it does not hold.
inline void check(bool holds, const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!holds) [[unlikely]] {
    check_failed(sentence, file, line);
  }
}

// What an optional, an owner or a pointer holds, which must be there.
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

// The first of a container that must not be empty.
template <class Container>
auto& first_of(Container& container, const char* sentence, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(!container.empty(), sentence, file, line);
  return container.front();
}

// What belongs to a local rank, in a container that has one entry for each worker of the node.
template <class Container>
auto& of_rank(Container& by_rank, int rank, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(rank >= 0 && static_cast<std::size_t>(rank) < by_rank.size(), "this node has no worker of that local rank", file, line);
  return by_rank[static_cast<std::size_t>(rank)];
}

}  // namespace ddprun
