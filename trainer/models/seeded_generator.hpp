// Temporarily seeds the default generators, so that a model's initial weights do not affect other draws.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>

namespace ddprun::trainer {

// Seeds the default CPU generator while it exists, then restores its earlier state.
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

// The same for the generators of the CPU and of the device. A program's own module may use either.
class SeededGenerators {
 public:
  SeededGenerators(c10::Device device, std::uint64_t seed) : cpu_(seed) {
    if (device.is_cpu()) return;
    on_device_ = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(on_device_.mutex());
    before_ = on_device_.get_state();
    on_device_.set_current_seed(seed);
  }
  ~SeededGenerators() {
    if (!on_device_.defined()) return;
    const std::lock_guard lock(on_device_.mutex());
    on_device_.set_state(before_);
  }
  SeededGenerators(const SeededGenerators&) = delete;
  SeededGenerators& operator=(const SeededGenerators&) = delete;

 private:
  SeededDefaultGenerator cpu_;
  at::Generator on_device_;
  at::Tensor before_;
};

}  // namespace ddprun::trainer
