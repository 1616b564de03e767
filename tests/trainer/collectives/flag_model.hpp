// A model checker for the flag protocol. It runs the production code of flag_word.hpp, exchange.hpp and send_receive.hpp with
// a model of atomic words. It explores all orders in which ranks may run, and all values that ranks may read in the C++ memory
// model.
//
// The memory. Each word has a history of its writes. A view contains the oldest write of each word that a rank may still read.
// It also contains, for each rank, how much of its work has happened before (a vector clock). A load may return any write that
// is not older than the view of its rank. A release stores the view of its rank in the write, and an acquire joins the view in
// the write that it reads. All writes of the protocol are read-modify-writes. They read the last write, and keep the view in
// it, because they continue its release sequence. Plain data have no history. The vector clocks are used to check each access
// for a data race.
//
// The exploration. Each rank is a fiber, which stops before each atomic operation. The search is depth first. One execution
// makes the first choice everywhere (which rank runs, which write a load returns). The next execution repeats all choices
// except the last one. If an execution reaches a state that was reached before, it ends. The state of a rank is a hash of the
// results of its operations. A wait loop starts again from the same state, so it is explored only once for each write that it
// reads. After that, its rank counts as blocked until there is a newer write. So if the wait of a rank never ends, the
// execution reaches a state in which no rank can run.
//
// With 3 ranks, a load returns only a write that ends the wait, or the newest write. This shortcut loses nothing: after an
// older write, the compare-exchange and the comparison in the kernel fail, and the loop starts again. With 2 ranks, the
// exploration does not use this shortcut.
//
// The cost: each execution starts again from the beginning and has tens of operations. A test explores up to some 100,000
// states in seconds.
//
// The model contains neither time, limits and lost ranks (faults_test.cpp tests these) nor load buffering (a load that reads a
// write which depends on this load). No word of the protocol depends on a later write of the same rank, because each rank
// first reads and then writes.
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

// The errors that a test plants into the protocol. The checker must find each error.
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

// The behaviour of a waiter while the phase is not reached. A sleeping waiter has many more states, so this case is checked
// with fewer chunks.
enum class Waiting { kSleep, kSpin, kEither };

struct Scenario {
  int ranks = 2;
  bool aborts = false;  // another process aborts the group at any time
  Waiting waiting = Waiting::kSleep;
  bool exposed = false;                       // inputs are in the data area
  std::function<void(Transport&)> program{};  // the program of each rank
};

struct Result {
  std::string violation;  // the violation that was found; empty if there is none
  std::uint64_t states = 0;
  std::uint64_t executions = 0;
};

Result explore(const Scenario& scenario, const Mutation& mutation);

// The programs of the ranks use the following declarations. A rank, a Data value and an index together identify a plain memory
// location. The rank owns the location, and all ranks can access it.
enum class Data : std::uint8_t { kInput, kResult, kExposed, kDescriptor, kCell };
void write_data(int accessing_rank, Data kind, int rank, std::size_t index, std::uint64_t value);
std::uint64_t read_data(int accessing_rank, Data kind, int rank, std::size_t index);
// Reports a violation if `holds` is false.
void require(bool holds, const char* what);

}  // namespace ddprun::trainer::collectives::model
