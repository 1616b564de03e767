// When a checkpoint is due and what happens when one is written: rank 0 alone does it, the others meet it again in the next
// all-reduce. A save that fails is reported and training goes on with the older checkpoints, unless it is the run's last.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "common/config/train_config.hpp"
#include "trainer/fault_injection.hpp"
#include "trainer/run_log.hpp"
#include "trainer/status.hpp"
#include "trainer/training_state.hpp"

namespace ddprun::trainer {

class Checkpointing {
 public:
  Checkpointing(std::filesystem::path folder, const CheckpointConfig& config, const Faults& faults, RunLog& log,
                Status& status);

  // Whether one is due when `step` steps are finished. The seconds count from the last save or the start.
  bool due(std::int64_t step) const;

  enum class Need {
    kUseful,    // a failure is a warning
    kRequired,  // a failure throws InternalError: what the run did since the last one would be lost in silence
  };
  // Saves and reports. Throws DivergedError rather than publish weights that are not numbers.
  void save(const TrainingState& state, const TrainConfig& config, const RunLength& length, const BucketOrder& bucket_order,
            int world, Need need);

 private:
  using Clock = std::chrono::steady_clock;
  std::filesystem::path folder_;
  CheckpointConfig config_;
  const Faults& faults_;
  RunLog& log_;
  Status& status_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace ddprun::trainer
