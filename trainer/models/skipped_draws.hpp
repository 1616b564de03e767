// Moves the default CPU generator on as if numbers had been drawn. Models call it where Python draws weights that it overwrites
// at once, so that the same seed still gives the same weights.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// As tensor.uniform_() of `count` float32 elements would leave it.
void skip_uniform_draws(std::int64_t count);

}  // namespace ddprun::trainer
