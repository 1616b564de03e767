// Advances the default CPU generator as if numbers had been drawn. Models call it where Python draws weights and then
// overwrites them, so that the same seed still gives the same weights.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// Has the effect of tensor.uniform_() with `count` float32 elements on the generator.
void skip_uniform_draws(std::int64_t count);

}  // namespace ddprun::trainer
