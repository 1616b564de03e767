// Finds the sample that causes an error: a NaN in the data after a NaN loss, or a label or token that is out of range. Without
// this search, the message for a NaN loss would suggest a lower learning rate, even if the data is the cause. The training
// steps and the evaluation call these functions.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "trainer/data/loader.hpp"

namespace ddprun::trainer {

// Returns the first NaN or infinite number in this rank's samples, with its location: "nan at [0, 3] of 'image' of sample 17 in
// train.safetensors". Returns an empty string if all numbers are finite. Makes each sample again with `source`.
std::string not_finite_in(const RankBatch& share, const Source& source);

// PyTorch's error "Target 3 is out of bounds" does not name the sample. This function finds the sample and throws a UsageError
// that names it. It makes each sample again and passes it to `use`, until a sample causes the same kind of error. The batch
// for `use` has the sample twice, since batch norm needs two samples. No gradients are computed. The error is a UsageError
// because a restart would fail in the same way.
[[noreturn]] void refuse_index(const c10::IndexError& error, std::span<const std::int64_t> samples, const Source& source,
                               const std::function<void(const Batch&)>& use);

}  // namespace ddprun::trainer
