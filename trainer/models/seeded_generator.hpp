// Changes the state of a default generator in a scope. Initial weights are drawn in such a scope, so that they do not affect
// other random numbers. A repeated forward pass (recomputed.hpp) uses the class to draw the same numbers again.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>

namespace ddprun::trainer {

// Returns the state of the device's default generator.
inline at::Tensor generator_state(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

// The constructor seeds the device's default generator, or sets its state. The destructor restores the earlier state.
class SeededGenerator {
 public:
  SeededGenerator(c10::Device device, std::uint64_t seed) : SeededGenerator(device) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_current_seed(seed);
  }
  SeededGenerator(c10::Device device, const at::Tensor& state) : SeededGenerator(device) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state);
  }
  ~SeededGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  explicit SeededGenerator(c10::Device device)
      : generator_(at::globalContext().defaultGenerator(device)), before_(generator_state(device)) {}

  at::Generator generator_;
  at::Tensor before_;
};

}  // namespace ddprun::trainer
