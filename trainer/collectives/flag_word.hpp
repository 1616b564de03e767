// A flag word with which one rank reports its progress to the other ranks, in shared memory. The code is pure: the caller
// passes the type of the word, and the calls that put a thread to sleep and wake it. Production code passes std::atomic and a
// futex (shared_memory/shared_transport.cpp). The model checker (tests/trainer/collectives/flag_model.hpp) passes its own word.
// It explores all orders in which ranks may run and see each other's writes.
//
// The problem. A rank must wait until another rank has written data, and must stop waiting if the group is aborted. The usual
// solution has a progress word, a count of sleepers and an abort flag. Each pair of these needs a full fence on both sides, as
// in Dekker's algorithm. Without the fence, a writer misses a sleeper, which then sleeps until its limit. x86 hides some of
// these errors, and ARM shows them.
//
// The idea. Progress, sleepers and abort flag are in one 32-bit word, and every write is an atomic read-modify-write:
//
//     bit 0: a rank sleeps on this word      bit 1: the group is aborted      bits 2 to 31: number of phases, modulo 2^30
//
// All threads agree on the order of writes to one word. So two writes of one word can't miss each other, and no fence is
// needed. Example: rank 0 has written its data, and adds 4 to its word. The old value contains the sleeper bit, so rank 0
// clears that bit and wakes all sleepers. If rank 1 sets the bit after the addition, its compare-exchange fails, and rank 1
// reads the word again. If rank 1 sets it before, the kernel compares the word again before it lets rank 1 sleep.
//
//  - The addition has release order, and a waiting rank loads the word with acquire order. So a rank that sees a phase also
//    sees all data that the owner of the word wrote before this phase. Later read-modify-writes by other ranks continue the
//    release sequence.
//  - Only the owner of a word adds to it. Any rank, and the agent, may set the abort bit. The addition keeps it.
//  - A phase that was reached counts, even if the abort bit is set too. So all ranks find the same mismatch of an operation
//    (exchange.hpp): the first rank that finds it aborts the group, when the descriptors of all ranks are already published.
//
// The cost. Publishing a phase costs one locked addition. A rank that waits for a phase needs only one load if the phase is
// already reached. Only a rank that sleeps needs system calls.
#pragma once

#include <atomic>
#include <cstdint>

namespace ddprun::trainer::collectives {

inline constexpr std::uint32_t kSleeperBit = 1;
inline constexpr std::uint32_t kAbortedBit = 2;
inline constexpr std::uint32_t kPhaseStep = 4;

// Returns true if the word shows this phase or a later one. `phase` is a multiple of kPhaseStep. The comparison is correct
// after an overflow too, because ranks are never 2^29 phases apart.
constexpr bool has_reached(std::uint32_t word, std::uint32_t phase) {
  return static_cast<std::int32_t>((word & ~(kSleeperBit | kAbortedBit)) - phase) >= 0;
}

// Publishes all previous writes of this thread with the next phase. Only the owner of the word may call it. Returns false if
// the group was already aborted. Calls `wake` with the word if a rank sleeps.
template <class Word, class Wake>
bool advance_word(Word& word, Wake&& wake) {
  const std::uint32_t before = word.fetch_add(kPhaseStep, std::memory_order_release);
  if ((before & kSleeperBit) != 0) {
    word.fetch_and(~kSleeperBit, std::memory_order_relaxed);
    wake(word);
  }
  return (before & kAbortedBit) == 0;
}

// Sets the abort bit and ends all waits on this word.
template <class Word, class Wake>
void abort_word(Word& word, Wake&& wake) {
  if ((word.fetch_or(kAbortedBit, std::memory_order_release) & kSleeperBit) != 0) wake(word);
}

enum class WaitOutcome { kReached, kAborted, kGaveUp };

// Waits for a phase of another rank. `waiter` has two functions:
//  - bool spins(): true if the waiter should read the word again immediately
//  - bool sleeps(word, seen): sleeps if the word still has the value `seen`. Returns false to end the wait.
template <class Word, class Waiter>
WaitOutcome await_phase(Word& word, std::uint32_t phase, Waiter&& waiter) {
  while (true) {
    std::uint32_t seen = word.load(std::memory_order_acquire);
    if (has_reached(seen, phase)) return WaitOutcome::kReached;
    if ((seen & kAbortedBit) != 0) return WaitOutcome::kAborted;
    if (waiter.spins()) continue;
    if ((seen & kSleeperBit) == 0) {
      if (!word.compare_exchange_strong(seen, seen | kSleeperBit, std::memory_order_relaxed)) continue;
      seen |= kSleeperBit;
    }
    if (!waiter.sleeps(word, seen)) {
      // After the word was read, its rank may have published this phase and ended, or another rank may have given up first. So
      // the word is read once more.
      const std::uint32_t last = word.load(std::memory_order_acquire);
      if (has_reached(last, phase)) return WaitOutcome::kReached;
      return (last & kAbortedBit) != 0 ? WaitOutcome::kAborted : WaitOutcome::kGaveUp;
    }
  }
}

}  // namespace ddprun::trainer::collectives
