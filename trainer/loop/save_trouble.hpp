// Which failed saves are said. A full disk fails one save after the other, and equal lines would bury the others: the first one
// is said, the next ones are counted, and their end is said. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>

namespace ddprun::trainer {

class SaveTrouble {
 public:
  // A save failed, and training goes on. Returns whether to say so: not when the save before failed for the same `cause`.
  bool failed(std::int64_t step, std::error_code cause);
  // A save succeeded. Returns what to say of failures that were not said; empty when there were none.
  std::string saved(std::int64_t step);

 private:
  std::error_code cause_;       // of the newest failure; none after a success
  std::int64_t unsaid_ = 0;     // failures since a success, but those that were said
  std::int64_t last_step_ = 0;  // of the newest failure
};

}  // namespace ddprun::trainer
