// A draw of a float32 takes one number of the generator's engine (ATen/CPUGeneratorImpl.cpp), which makes blocks of 624. This
// function takes only the first number of each block, which generates the block, and then advances the position in it.
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
