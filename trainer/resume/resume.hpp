// Chooses the checkpoint from which a run continues.
//
// The problem. Without a shared disk, each node has different checkpoints: those in its copy of the run directory, and the
// copies on its own disk. Some may be damaged, and some may belong to another run in the same directory. All ranks must
// continue from the same step with the same content, and must not restart from step 0 by mistake, which would lose the run.
//
// The idea. Each rank finds the newest valid checkpoint of this run that it can read, and the ranks choose the newest of these.
// The ranks that can read the chosen checkpoint load it and send the state to the other ranks (resumed_state.hpp). Bad
// checkpoints are renamed and reported. If there are checkpoints but none is valid, the job fails instead of starting over at
// step 0.
//
// Example: 2 nodes. Node A has checkpoints of steps 100 and 200, and node B only has step 100. The ranks choose step 200. The
// ranks of node A load this checkpoint and send its state to node B.
//
// The cost. Each rank checks the manifests of the checkpoints that it can read. The chosen checkpoint is read once per machine
// (divided_read.hpp). If rank 0 loads a copy on its node's disk, it also reads the checkpoint in the run directory to verify
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/parallel/peers.hpp"
#include "trainer/resume/visible_checkpoints.hpp"
#include "trainer/state/run_identity.hpp"
#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {

using Warn = std::function<void(const std::string&)>;

struct ResumeFrom {
  std::int64_t step = 0;
  std::vector<int> holders;                        // ranks that can read the checkpoint; at least one
  std::optional<std::filesystem::path> path;       // path at which this rank can read the checkpoint; nullopt if it can't
  std::shared_ptr<const CheckpointState> saved{};  // the loaded checkpoint; null if it was not loaded yet
};

struct ResumeChoice {
  std::optional<ResumeFrom> from;  // nullopt if training starts at step 0
  RunIdentity run;                 // the same on all ranks; stored in places.run_file
};

// Applies the option --resume. All ranks must call this. The values of the option are:
//
//  - auto: chooses the newest step for which any rank has a valid checkpoint of this run. If copies of this step differ, the
//    copy of the lowest rank is used. Throws BadCheckpointError on all ranks if there are checkpoints, but no valid one of this
//    run.
//  - never: starts at step 0. Only the option of rank 0 counts.
//  - a path: at least one rank must have this option; ranks without it use the path of the lowest such rank. Throws UsageError
//    on all ranks if no rank has a valid checkpoint at the path, or if ranks have different checkpoints there.
//
// `never` and a path give the run a new identity. These options apply only to the first start. After a restart within the job
// (restart_count > 0), the run continues from its own checkpoints. If it has none yet, it starts from the path or from step 0
// again. With auto, the run keeps its identity, which is the first of these that exists: the run file of rank 0, the newest
// valid checkpoint in the run directory of rank 0, the run file of the lowest rank that has one, the newest checkpoint of any
// rank.
//
// `data` is the fingerprint of this rank's training data, and is stored with the identity. If the run used different data
// before, throws UsageError on all ranks, unless it starts at step 0 or any rank has --data-changed. If `data` is empty on any
// rank, as after a restart within the job, the data is not compared.
//
// `into` has the tensors of this rank's state. The checkpoint is loaded directly into them where they fit
// (divided_read.hpp). After an exception, or if the loaded checkpoint does not fit the state, they have undefined values.
//
// The run repeats the steps after the chosen step and saves them again. Old checkpoints of these steps must not be mistaken for
// the new ones. So rank 0 renames the old ones in the run directory to step-N.superseded, and invalid ones to step-N.bad. One
// rank of each node does the same for the copies on the node's disk. All renames are reported to `warn`.
ResumeChoice choose_resume(const Options& options, int restart_count, const CheckpointPlaces& places, const std::string& data,
                           const Peers& peers, const Warn& warn, const CheckpointState& into = {});

}  // namespace ddprun::trainer
