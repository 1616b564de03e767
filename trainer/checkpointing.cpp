#include "trainer/checkpointing.hpp"

#include <string>
#include <system_error>
#include <utility>

#include "common/error.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

Checkpointing::Checkpointing(std::filesystem::path folder, const CheckpointConfig& config, const Faults& faults, RunLog& log,
                             Status& status)
    : folder_(std::move(folder)), config_(config), faults_(faults), log_(log), status_(status) {}

bool Checkpointing::due(std::int64_t step) const {
  if (config_.every_steps > 0 && step % config_.every_steps == 0) return true;
  return config_.every_seconds > 0 && std::chrono::duration<double>(Clock::now() - last_).count() >= config_.every_seconds;
}

void Checkpointing::save(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                         const BucketOrder& bucket_order, int world, Need need) {
  const channel::Phase before = status_.phase();
  const auto begin = Clock::now();
  status_.enter(channel::Phase::kSaving);
  if (!all_finite(state)) {
    throw DivergedError(
        "after step " + std::to_string(state.step) +
        " some weights are NaN or infinite; they are not saved. The newest checkpoint is from before that; a lower "
        "learning rate, warm-up or clip_grad_norm may help");
  }
  try {
    const SaveResult result = save_checkpoint(folder_, checkpoint_of(state, config, length, bucket_order, world), config_.keep,
                                              [&](const char*) { faults_.at(FaultPhase::kSaving, state.step); });
    const auto pause = Clock::now() - begin;
    log_.checkpoint(state.step, result.path.string(), result.bytes, std::chrono::duration<double>(pause).count());
    if (!result.note.empty()) log_.warn(channel::ErrorKind::kCheckpoint, result.note);
  } catch (const std::system_error& error) {
    const std::string text = "the checkpoint of step " + std::to_string(state.step) + " could not be saved: " + error.what();
    if (need == Need::kRequired) {
      throw InternalError(
          text +
          ". It is the last of this run: make room or mend the folder, then start the run again; it goes on from "
          "the newest checkpoint");
    }
    log_.warn(channel::ErrorKind::kCheckpoint, text + "; training goes on, older checkpoints are untouched");
  }
  last_ = Clock::now();
  log_.stood_still(last_ - begin);
  status_.enter(before);
}

}  // namespace ddprun::trainer
