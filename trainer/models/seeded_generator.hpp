// The default CPU generator with a seed of one's own for a while, so that a model's first weights disturb nobody's draws.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <mutex>

namespace ddprun::trainer {

// Seeds the default CPU generator for as long as this lives, then puts back the state it had.
class SeededDefaultGenerator {
 public:
  explicit SeededDefaultGenerator(std::uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~SeededDefaultGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  SeededDefaultGenerator(const SeededDefaultGenerator&) = delete;
  SeededDefaultGenerator& operator=(const SeededDefaultGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

}  // namespace ddprun::trainer
