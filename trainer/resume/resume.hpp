// Chooses the checkpoint from which a run continues: the newest valid one of this run that any rank can read. The ranks that
// have it load it, and the others get the state from them (resumed_state.hpp). So nodes need no common disk. Bad checkpoints
// are renamed and reported, never skipped silently. If there are checkpoints and none is valid, the run stops and does not
// start over.
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
  std::vector<int> holders;                        // ranks that can read it; at least one
  std::optional<std::filesystem::path> path;       // where this rank reads it, if it can
  std::shared_ptr<const CheckpointState> saved{};  // content that was read from there; null: not read yet
};

struct Beginning {
  std::optional<ResumeFrom> from;  // nullopt: training begins at step 0
  RunIdentity run;                 // the same on all ranks; stored in places.run_file
};

// Collective. Applies --resume. `auto` chooses the newest step of which any rank has a valid copy of this run. The copy of the
// lowest such rank counts; other content at that step is ignored. The first of these that exists gives the run's identity: rank
// 0's run file, the newest valid checkpoint of the run directory, the run file of the lowest rank that has one, the newest
// copy. Throws BadCheckpointError on all ranks if there are checkpoints but none of this run is valid.
//
// `never` counts only on rank 0. A path counts if any rank gives one; the other ranks need none. Both give the run a new
// identity and hold for the first start only. After a restart within the job (restart_count > 0) the run continues from its own
// checkpoints. Throws UsageError on all ranks if no rank has a valid checkpoint at the path, or if two ranks have different
// ones.
//
// `data` is the fingerprint of this rank's training data; it is kept with the run. If the run began with other data, the start
// is refused with UsageError on all ranks. A start from step 0, or --data-changed on any rank, allows it. Empty on any rank: no
// comparison, as after a restart within the job.
//
// Checkpoints past the starting point would look like later ones of this run. So rank 0 renames those of the run directory to
// step-N.superseded and bad ones to step-N.bad. One rank of each node does the same on its own disk. All renames are reported
// to `warn`.
Beginning choose_resume(const Options& options, int restart_count, const CheckpointPlaces& places, const std::string& data,
                        const Peers& peers, const Warn& warn);

}  // namespace ddprun::trainer
