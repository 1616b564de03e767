// Reductions of the same elements of all ranks, always in the order of ranks. The code is pure (no I/O, no clock). The loops
// are vectorized by the compiler (-O3 in trainer/CMakeLists.txt).
//
// Order. Each element is ((rank 0 op rank 1) op rank 2) op ..., whatever the size, the alignment and the chunk. So a gradient
// has the same bits in any bucket, and under any strategy.
//
// float16 and bfloat16. Each operation is computed in float, and its result is rounded to the stored type (nearest, ties to
// even), as in Gloo. Rounding only once, at the end, would be more exact. But then a sum over several machines would depend on
// the number of ranks per machine. To avoid this, the machines would have to exchange partial sums in float, which doubles the
// traffic. The average divides the rounded sum and rounds again.
//
// Other types. Integers wrap around. Minimum and maximum are NaN if the element of any rank is NaN. For bool, the operations
// kSum, kMax and kOr all compute the logical or; kProduct, kMin and kAnd all compute the logical and.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/collectives/operation.hpp"

namespace ddprun::trainer::collectives {

// Returns false for an average of integers or bool, for bitwise operations on floating-point types, and for kNone.
bool can_reduce(ElementType type, Reduction reduction);
// Throws std::invalid_argument if the operation's reduction is not defined for its type.
void check_reduction(const OperationDescriptor& operation);

// Writes the reduction of `inputs` (one per rank, in the order of ranks) to each of `outputs`. Pointers need not be aligned. An
// output may be the same memory as an input, but must not overlap it otherwise.
void reduce_in_order(ElementType type, Reduction reduction, std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> outputs, std::size_t elements);

// These are the conversions that reduce_in_order() uses. They round to nearest, ties to even. NaN becomes a quiet NaN.
float float_of_half(std::uint16_t bits);
std::uint16_t half_of_float(float value);
float float_of_bfloat16(std::uint16_t bits);
std::uint16_t bfloat16_of_float(float value);

}  // namespace ddprun::trainer::collectives
