// Why a loss is no number, where the data is to blame. train.cpp asks before it blames the learning rate.
#pragma once

#include <string>

#include "trainer/data/loader.hpp"

namespace ddprun::trainer {

// The first NaN or infinite number of a share, and where it is from: "nan at [0, 3] of 'image' of sample 17 in
// train.safetensors". Empty: there is none. Makes the share again, sample by sample.
std::string not_finite_in(const Share& share, const Source& source);

}  // namespace ddprun::trainer
