// Detects a replacement worker that runs a different build of the worker program. A different build may compute different
// gradients without an error, and all ranks would apply them. So survivors send their state only to ranks whose build was in
// their last group. trainer/life/state_source.cpp checks the builds in every new group.
#pragma once

#include <cstdint>
#include <set>
#include <stdexcept>
#include <vector>

#include "trainer/parallel/peers.hpp"
#include "trainer/state/state_comparison.hpp"

namespace ddprun::trainer {

// Thrown if a replacement runs an unknown build. The survivors drop their state, and all ranks start again from a checkpoint.
class OtherBuildError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns the digest of the executable file of this process; zeros if the file can't be read.
StateDigest digest_of_own_program();

class ProgramBuilds {
 public:
  // All ranks must call this. Every rank sends its build `own` and its progress, which is the result of progress_of()
  // (state_sharing.hpp). Builds may differ between nodes from the start of the group, so each build of the last group is
  // accepted. If a rank has a build that is unknown to the ranks with state, all ranks throw OtherBuildError. Returns the
  // progress of all ranks. Both values are sent in one exchange, because every exchange delays the recovery.
  std::vector<std::int64_t> agree(const StateDigest& own, std::int64_t progress, const Peers& peers);

 private:
  std::set<StateDigest> known_;  // builds of all ranks in the last group
};

}  // namespace ddprun::trainer
