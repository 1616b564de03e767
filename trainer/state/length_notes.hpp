// Warnings about a run whose length the user probably did not intend. The config is valid, and the run ends without an error:
//   - max_steps is after the last epoch, so the run ends before max_steps;
//   - the warm-up is longer than the run, so the learning rate never reaches its configured value;
//   - the run was extended after its learning rate had decayed, so the rate jumps up again;
//   - checkpoint.local_dir and time-based saves are combined, so a save is delayed until the next logged step.
// The code is pure: no I/O, no clock. trainer/life prints the warnings on rank 0 at the start of the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

// Returns the warnings. `step` is the number of finished steps at the start. `planned_before` is the total number of steps in
// the config that wrote the checkpoint; 0 for a new run.
std::vector<std::string> length_notes(const TrainConfig& config, const RunLength& length, std::int64_t step,
                                      std::int64_t planned_before);

}  // namespace ddprun::trainer
