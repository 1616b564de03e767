// Advances the default CPU generator as if numbers had been drawn, which is faster than drawing them. Models call this where
// Python draws weights that it later overwrites. So the same seed gives the same weights as in Python.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// Changes the generator in the same way as tensor.uniform_() with `count` float32 elements.
void skip_uniform_draws(std::int64_t count);

}  // namespace ddprun::trainer
