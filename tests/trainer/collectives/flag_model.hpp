// A model checker for the flag protocol. It runs the production code of flag_word.hpp, exchange.hpp and send_receive.hpp with a
// model of atomic words, and explores all orders in which ranks may run, and all values that the C++ memory model lets them
// read.
//
// The memory. Each word has a history of its writes. A view contains, for each word, the oldest write that a rank may still
// read, and for each rank, how much of its work has happened before (a vector clock). A load may return any write that is not
// older than the view of its rank. A release stores the view of its rank in the write, and an acquire joins the view that it
// finds. All writes of the protocol are read-modify-writes. They read the last write, and keep the view that it contains, since
// they continue its release sequence. Plain data have no history: each access is checked for a data race with the vector
// clocks.
//
// The exploration. Each rank is a fiber, which stops before each atomic operation. Depth first: one execution makes the first
// choice everywhere (which rank runs, which write a load returns). The next execution repeats the choices except the last one.
// A state that was reached before ends the execution. The state of a rank is a hash of the results of its operations. A loop
// that waits starts again from the same state, so it is explored only once for each write that it reads, and then counts as
// blocked until there is a newer write. So a rank that waits without an end is a state in which no rank can run.
//
// With 3 ranks, loads return only writes that end the wait, or the newest write. After an older write, the compare-exchange and
// the comparison of the kernel fail, and the loop starts again. 2 ranks are explored without this shortcut.
//
// The cost: an execution repeats its choices from the start, and has some tens of operations. A test explores up to some
// 100,000 states in seconds.
//
// Not modelled: time, limits and lost ranks (faults_test.cpp), and load buffering (a load that reads a write which depends on
// it). No word of the protocol depends on a later write of the same rank, because each rank first reads and then writes.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/collectives/flag_word.hpp"
#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives::model {

// The errors that a test plants into the protocol. The checker must find each of them.
struct Mutation {
  bool relaxed_load = false;      // the load of a waiter has no acquire order
  bool relaxed_publish = false;   // the addition has no release order
  bool abort_unchecked = false;   // a waiter ignores the abort bit
  bool no_wake = false;           // a publication wakes no sleeper
  bool no_wake_on_abort = false;  // an abort wakes no sleeper
  bool lost_abort_bit = false;    // a publication clears the abort bit
  bool blind_sleep = false;       // a waiter sleeps without comparing the word
  std::size_t slots = kSlots;     // number of slots that are used in turn; a smaller number is a planted error
  std::size_t descriptors = 2;    // number of descriptors that are used in turn; a smaller number is a planted error
};

// The behaviour of a waiter while the phase is not reached. Sleeping has many more states, so it is checked with fewer chunks.
enum class Waiting { kSleep, kSpin, kEither };

struct Scenario {
  int ranks = 2;
  bool aborts = false;  // another process aborts the group at any time
  Waiting waiting = Waiting::kSleep;
  bool exposed = false;                       // inputs are in the data area
  std::function<void(Transport&)> program{};  // what each rank runs
};

struct Result {
  std::string violation;  // empty if there is none
  std::uint64_t states = 0;
  std::uint64_t executions = 0;
};

Result explore(const Scenario& scenario, const Mutation& mutation);

// For the programs. A plain memory location, which all ranks can access: `rank` owns it, `kind` and `index` identify it.
enum class Data : std::uint8_t { kInput, kResult, kExposed, kDescriptor, kCell };
void write_data(int accessing_rank, Data kind, int rank, std::size_t index, std::uint64_t value);
std::uint64_t read_data(int accessing_rank, Data kind, int rank, std::size_t index);
// Reports a violation if `holds` is false.
void require(bool holds, const char* what);

}  // namespace ddprun::trainer::collectives::model
