// Warnings about the length of a run that the user probably did not intend. The config is valid, and the run would end without
// an error:
//   - max_steps is beyond the last epoch, so the run ends earlier;
//   - the warm-up is longer than the run, so the learning rate never reaches its value;
//   - a run whose rate had decayed was made longer, so the rate jumps up again;
//   - if nodes write copies, a save by time waits for a logged step.
// Pure. trainer/life prints them once, at the start, on rank 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

// `step` is the number of finished steps at the start. `planned_before` is total_steps at the time of the checkpoint; 0 for a
// new run.
std::vector<std::string> length_notes(const TrainConfig& config, const RunLength& length, std::int64_t step,
                                      std::int64_t planned_before);

}  // namespace ddprun::trainer
