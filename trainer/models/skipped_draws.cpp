// The generator's engine, a Mersenne Twister, computes 624 numbers at a time, when the first number of such a block is drawn.
// Each float32 uses one number (ATen/CPUGeneratorImpl.cpp). So this function draws only the first number of each block, which
// makes the engine compute the block, and advances the position past the other numbers.
#include "trainer/models/skipped_draws.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace ddprun::trainer {

void skip_uniform_draws(std::int64_t count) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  auto* const cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
  at::mt19937 engine = cpu->engine();
  while (count > 0) {
    at::mt19937_data_pod place = engine.data();
    const auto passed = static_cast<int>(std::min<std::int64_t>(count, place.left_ - 1));
    place.left_ -= passed;
    place.next_ += static_cast<std::uint32_t>(passed);
    engine.set_data(place);
    count -= passed;
    if (count-- > 0) engine();
  }
  cpu->set_engine(engine);
}

}  // namespace ddprun::trainer
