// Which checkpoint a run goes on from: the newest valid one of this run that any rank can read. The ranks that have it load it,
// the others get the state from them (resumed_state.hpp), so nodes need no disk in common. Bad ones are set aside and named,
// never skipped in silence; checkpoints of which none is valid stop the run rather than let it start over.
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
  std::optional<std::filesystem::path> path;       // where this rank reads it, when it is one of them
  std::shared_ptr<const CheckpointState> saved{};  // what it has read there; null: to be read
};

struct Beginning {
  std::optional<ResumeFrom> from;  // nothing: training begins at step 0
  RunIdentity run;                 // the same on all ranks, and kept in places.run_file
};

// Collective. What --resume asks for. `auto`: the newest step of which any rank has a valid copy that is of this run, and of
// its copies what the lowest such rank has; copies of that step that contain something else are nobody's. Whose run it is, rank
// 0 says by its run file, else by the newest valid checkpoint of the run directory; else the run file of the lowest rank that
// has one, and where nobody knows, the newest copy decides. Throws BadCheckpointError on all ranks when there are checkpoints
// but none of this run is valid.
//
// `never` is rank 0's to say. A path counts when any rank gives one; ranks without it may do without. Both make another run of
// it, with a new identity, and hold for the first start only: after a restart within the job (restart_count > 0) the run goes
// on from what it has saved since. Throws UsageError on all ranks when no rank has a valid checkpoint there, or two have
// different ones.
//
// `data` is the fingerprint of what this rank would train on. Where the run is known to have begun with another, the start is
// refused with UsageError on all ranks, unless any of them was told that it has changed (--data-changed) or nothing is gone on
// from. It is kept with the run. Empty on any rank: it is not looked at, as after a restart within the job.
//
// Checkpoints past the starting point would be taken for this run's later, so rank 0 renames those of the run directory to
// step-N.superseded and bad ones to step-N.bad, and one rank of each node those on its own disk. `warn` is told of all.
Beginning choose_resume(const Options& options, int restart_count, const CheckpointPlaces& places, const std::string& data,
                        const Peers& peers, const Warn& warn);

}  // namespace ddprun::trainer
