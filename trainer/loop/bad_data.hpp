// Errors that the data causes: why a loss is not a number, and which sample has a number out of range. train.cpp calls it
// before it names the learning rate, and evaluate.cpp for what is measured.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "trainer/data/loader.hpp"

namespace ddprun::trainer {

// The first NaN or infinite number of a share, and where it is from: "nan at [0, 3] of 'image' of sample 17 in
// train.safetensors". Empty: there is none. Makes the share again, sample by sample.
std::string not_finite_in(const Share& share, const Source& source);

// Throws UsageError for PyTorch's error "Target 3 is out of bounds", which does not name the sample: a restart would meet it
// again. Makes each sample again and gives it to `use`, twice in one batch since batch norm needs two, until one of them throws
// the same kind of error. Without gradients.
[[noreturn]] void refuse_index(const c10::IndexError& error, std::span<const std::int64_t> samples, const Source& source,
                               const std::function<void(const Batch&)>& use);

}  // namespace ddprun::trainer
