// The build of the worker program that each rank runs. A state is only sent to a rank whose build was in the group before.
// Another build may compute different results without any error, since all ranks apply the same gradients.
// trainer/life/state_source.cpp checks it in every new group.
#pragma once

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/parallel/peers.hpp"
#include "trainer/state/state_comparison.hpp"

namespace ddprun::trainer {

// A replacement runs another build. The surviving state is dropped, and all ranks start again from a checkpoint.
class OtherBuildError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Digest of the file from which this process was started; zeros if it can't be read.
StateDigest digest_of_own_program();

class ProgramBuilds {
 public:
  // Collective. Nodes may have had different builds when the group began, and each of these builds is accepted again. Suppose
  // that a rank with state has never been in a group with the build of some rank. Then all ranks throw OtherBuildError. `own`
  // is this rank's build. `progress` is progress_of() its state (state_sharing.hpp). Returns the progress of all ranks: every
  // exchange delays the recovery of a lost rank, so this one carries both.
  std::vector<std::int64_t> agree(const StateDigest& own, std::int64_t progress, const Peers& peers);

 private:
  std::set<StateDigest> known_;  // builds of the last group's ranks
};

}  // namespace ddprun::trainer
