// Finds the data that causes an error: a NaN behind a NaN loss, or a sample with an index out of range. train.cpp calls it
// before it suggests a lower learning rate. evaluate.cpp calls it when a metric can't be computed.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "trainer/data/loader.hpp"

namespace ddprun::trainer {

// Returns the first NaN or infinite number of a share and its source: "nan at [0, 3] of 'image' of sample 17 in
// train.safetensors". Empty if there is none. Loads the share again, sample by sample.
std::string not_finite_in(const Share& share, const Source& source);

// Throws UsageError for PyTorch's error "Target 3 is out of bounds", which does not name the sample. A restart would fail in
// the same way. Loads each sample again and passes it to `use`, until one of them causes the same kind of error. Each batch has
// the sample twice, since batch norm needs two. Runs without gradients.
[[noreturn]] void refuse_index(const c10::IndexError& error, std::span<const std::int64_t> samples, const Source& source,
                               const std::function<void(const Batch&)>& use);

}  // namespace ddprun::trainer
