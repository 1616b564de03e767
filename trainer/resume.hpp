// Which checkpoint a run goes on from: the newest one that every rank finds valid, so that all ranks load the same. Bad ones
// are set aside and named, never skipped in silence; checkpoints of which none is valid stop the run rather than let it start
// over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "trainer/options.hpp"
#include "trainer/peers.hpp"
#include "trainer/visible_checkpoints.hpp"

namespace ddprun::trainer {

using Warn = std::function<void(const std::string&)>;

struct ResumeFrom {
  std::int64_t step = 0;
  std::filesystem::path path;
};

// Collective. Ranks may read it from different places: what they agree on is the step and the content. nullopt: there are no
// checkpoints, start anew. Rank 0 sets bad ones of the run directory aside, and one rank of each node those on its own disk,
// and tells `warn`. Throws BadCheckpointError on all ranks when there are checkpoints but none that all ranks can read.
std::optional<ResumeFrom> agree_on_checkpoint(const CheckpointPlaces& places, const Peers& peers, const Warn& warn);

// Collective. What --resume asks for; `never` is rank 0's to say. `never` and a path hold for the first start only: after a
// restart within the job (restart_count > 0) the run goes on from what it has saved since. Checkpoints of steps past the
// starting point would be taken for this run's then, so they are renamed to step-N.superseded.
std::optional<ResumeFrom> choose_resume(const Options& options, int restart_count, const CheckpointPlaces& places,
                                        const Peers& peers, const Warn& warn);

}  // namespace ddprun::trainer
