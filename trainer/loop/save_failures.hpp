// Decides which failed saves are reported. On a full disk each save fails, and the same warning would appear again and again.
// So only the first failure is reported. Further failures with the same cause are counted, and the next success reports their
// number. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace ddprun::trainer {

class SaveFailures {
 public:
  // Counts a failed save after which training continues. Returns true if the failure should be reported, and false if the
  // previous save failed with the same `cause`.
  bool failed(std::int64_t step, std::error_code cause) {
    last_step_ = step;
    if (cause != std::exchange(cause_, cause)) return true;
    ++unreported_;
    return false;
  }
  // Records a successful save. Returns a message about earlier failures that were not reported; empty if there are none.
  std::string saved(std::int64_t step) {
    cause_ = {};
    const std::int64_t unreported = std::exchange(unreported_, 0);
    if (unreported == 0) return {};
    return "the checkpoint of step " + std::to_string(step) + " was saved. " + std::to_string(unreported) +
           (unreported == 1 ? " earlier checkpoint" : " earlier checkpoints") + " could not be saved, most recently at step " +
           std::to_string(last_step_);
  }

 private:
  std::error_code cause_;        // cause of the newest failure; empty after a success
  std::int64_t unreported_ = 0;  // number of failures since the last success that were not reported
  std::int64_t last_step_ = 0;   // step of the newest failure
};

}  // namespace ddprun::trainer
