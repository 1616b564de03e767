// Which build of the worker program each rank runs. A state is only handed to a rank whose program was in the group before:
// another build may compute something else, and nobody would notice, since all ranks apply the same gradients.
// trainer/life/state_source.cpp asks on every new group.
#pragma once

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/parallel/peers.hpp"
#include "trainer/state/state_comparison.hpp"

namespace ddprun::trainer {

// A replacement's program is another one. The state that survived is not kept: all start again, from a checkpoint.
class OtherBuildError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Of the file that this process was started from; zeros: it can't be read.
StateDigest digest_of_own_program();

class ProgramBuilds {
 public:
  // Collective. Nodes may have had different builds when the group began, and each may come back. Throws OtherBuildError on all
  // ranks where one that holds state has not been in a group with the build of every rank. `own`: of this rank. `progress`:
  // progress_of() its state (state_sharing.hpp). Returns that of all ranks, since all of a lost rank's peers wait for each
  // exchange.
  std::vector<std::int64_t> agree(const StateDigest& own, std::int64_t progress, const Peers& peers);

 private:
  std::set<StateDigest> known_;  // of the last group's ranks
};

}  // namespace ddprun::trainer
