// Decides which failed saves are reported. On a full disk each save fails, and equal lines would bury the others. So the first
// failure is reported, the next ones are counted, and the first success reports their number. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>

namespace ddprun::trainer {

class SaveTrouble {
 public:
  // A save failed, and training continues. Returns whether to report it: false if the save before failed for the same `cause`.
  bool failed(std::int64_t step, std::error_code cause);
  // A save succeeded. Returns a message about failures that were not reported; empty if there were none.
  std::string saved(std::int64_t step);

 private:
  std::error_code cause_;       // cause of the newest failure; empty after a success
  std::int64_t unsaid_ = 0;     // failures since the last success that were not reported
  std::int64_t last_step_ = 0;  // step of the newest failure
};

}  // namespace ddprun::trainer
