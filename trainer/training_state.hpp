// What must survive a restart: the weights, the optimizer's state and the number of finished steps, from which the position in
// the data and every random number follow (run_length.hpp, seeds.hpp). What can be rebuilt is in workspace.hpp.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/models/model.hpp"
#include "trainer/optim/optimizer.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/run_length.hpp"

namespace ddprun::trainer {

struct TrainingState {
  std::shared_ptr<Model> model;
  std::vector<NamedTensor> parameters;  // of the model, shared with it
  std::vector<NamedTensor> buffers;
  std::unique_ptr<Optimizer> optimizer;
  std::int64_t step = 0;     // finished
  BucketOrder bucket_order;  // of the Reducer that made a loaded checkpoint; empty for a new run
};

// A new run's: weights from the config's seed, or from model.init. Throws UsageError when they don't fit.
TrainingState new_training_state(const TrainConfig& config, ImageShape shape, c10::Device device);

// Replaces the state by a checkpoint's. Throws UsageError, naming `source`, when it is of another model, optimizer or data
// position.
void restore(TrainingState& state, const CheckpointState& saved, const RunLength& length, const std::filesystem::path& source);

// The state as a checkpoint. `bucket_order` is the one in use.
CheckpointState checkpoint_of(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                              const BucketOrder& bucket_order, int world);

// Why a run that goes on from `saved` has numbers that agree to rounding only and not to the bit (DECISIONS.md 18), such as
// "3 workers instead of 2"; empty when nothing of that differs.
std::string rounding_differences(const CheckpointState& saved, const TrainConfig& config, int world);

// True when no weight and no moment of the optimizer is NaN or infinite.
bool all_finite(const TrainingState& state);

}  // namespace ddprun::trainer
