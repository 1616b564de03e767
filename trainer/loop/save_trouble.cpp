// Implementation of save_trouble.hpp.
#include "trainer/loop/save_trouble.hpp"

#include <utility>

namespace ddprun::trainer {

bool SaveTrouble::failed(std::int64_t step, std::error_code cause) {
  last_step_ = step;
  if (cause != std::exchange(cause_, cause)) return true;
  ++unsaid_;
  return false;
}

std::string SaveTrouble::saved(std::int64_t step) {
  cause_ = {};
  const std::int64_t unsaid = std::exchange(unsaid_, 0);
  if (unsaid == 0) return {};
  return "the checkpoint of step " + std::to_string(step) + " is saved; " + std::to_string(unsaid) +
         (unsaid == 1 ? " more was not" : " more were not") + ", the last one of step " + std::to_string(last_step_);
}

}  // namespace ddprun::trainer
