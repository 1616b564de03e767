// Implementation of reduction.hpp. One loop for all types and operations: it reduces a block of all ranks into an array in the
// first-level cache, and copies the array to the outputs.
#include "trainer/collectives/reduction.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/base/check.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::size_t kBlockBytes = 8192;

// The branch-free conversions of float16 follow Maratyszcza's FP16 (fp16_ieee_to_fp32_value, fp16_ieee_from_fp32_value). All
// factors are powers of two, so that a fused multiply-add gives the same result.
inline float widened_half(std::uint16_t bits) {
  const std::uint32_t moved = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
  const float scaled = std::bit_cast<float>(moved) * 0x1.0p+112f;         // this product also normalizes subnormal numbers
  const std::uint32_t special = moved >= 0x0f800000u ? 0x7f800000u : 0u;  // infinity or NaN
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

inline std::uint16_t rounded_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t doubled = bits + bits;
  const std::uint32_t exponent = std::max(doubled & 0xff000000u, 0x71000000u);
  // Values above the largest half become infinite. The addition in `placed` rounds at the position of the half's last bit.
  const float scaled = (std::bit_cast<float>(bits & 0x7fffffffu) * 0x1.0p+112f) * 0x1.0p-110f;
  const float placed = std::bit_cast<float>((exponent >> 1) + 0x07800000u) + scaled;
  const std::uint32_t rounded = std::bit_cast<std::uint32_t>(placed);
  const std::uint32_t half = ((rounded >> 13) & 0x7c00u) + (rounded & 0x0fffu);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | (doubled > 0xff000000u ? 0x7e00u : half));
}

inline float widened_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t rounded_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// Defines how an element type is stored, and in which type its operations are computed.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored stored) { return widened_half(stored); }
  static Stored store(Value value) { return rounded_half(value); }
};
struct Bfloat16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored stored) { return widened_bfloat16(stored); }
  static Stored store(Value value) { return rounded_bfloat16(value); }
};
struct Bool {
  using Stored = std::uint8_t;
  using Value = std::uint8_t;
  static Value load(Stored stored) { return static_cast<Value>(stored != 0); }
  static Stored store(Value value) { return value; }
};

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      // The factor 1u prevents the promotion of uint16_t to int, because a product of type int can overflow.
      return static_cast<T>(1u * static_cast<std::make_unsigned_t<T>>(a) * static_cast<std::make_unsigned_t<T>>(b));
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return a < b || a != a ? a : b;  // a != a means that a is NaN
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class Number, class Operation, bool kDivide = false>
void reduce_blocks(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs, std::size_t elements) {
  using Stored = typename Number::Stored;
  // The callers' memory need not be aligned, and may have any type.
  typedef Stored Unaligned __attribute__((aligned(1), may_alias));
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Stored);
  alignas(64) Stored result[kBlock];
  for (std::size_t begin = 0; begin < elements; begin += kBlock) {
    const std::size_t count = std::min(kBlock, elements - begin);
    const auto input = [&](std::size_t rank) {
      return reinterpret_cast<const Unaligned*>(inputs[rank] + begin * sizeof(Stored));
    };
    const Unaligned* const first = input(0);
    if (inputs.size() == 1) {
      for (std::size_t i = 0; i < count; ++i) result[i] = Number::store(Number::load(first[i]));
    } else {
      const Unaligned* const second = input(1);
      for (std::size_t i = 0; i < count; ++i) {
        result[i] = Number::store(Operation::apply(Number::load(first[i]), Number::load(second[i])));
      }
    }
    for (std::size_t rank = 2; rank < inputs.size(); ++rank) {
      const Unaligned* const next = input(rank);
      for (std::size_t i = 0; i < count; ++i) {
        result[i] = Number::store(Operation::apply(Number::load(result[i]), Number::load(next[i])));
      }
    }
    if constexpr (kDivide) {
      const auto ranks = static_cast<typename Number::Value>(inputs.size());
      for (std::size_t i = 0; i < count; ++i) result[i] = Number::store(Number::load(result[i]) / ranks);
    }
    for (std::byte* const output : outputs) std::memcpy(output + begin * sizeof(Stored), result, count * sizeof(Stored));
  }
}

using Reducer = void (*)(std::span<const std::byte* const>, std::span<std::byte* const>, std::size_t);

template <class Number>
Reducer arithmetic_reducer(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return reduce_blocks<Number, Sum>;
    case Reduction::kProduct:
      return reduce_blocks<Number, Product>;
    case Reduction::kMin:
      return reduce_blocks<Number, Min>;
    case Reduction::kMax:
      return reduce_blocks<Number, Max>;
    default:
      return nullptr;
  }
}

template <class Number>
Reducer floating_reducer(Reduction reduction) {
  return reduction == Reduction::kAverage ? reduce_blocks<Number, Sum, true> : arithmetic_reducer<Number>(reduction);
}

template <class Number>
Reducer bitwise_reducer(Reduction reduction) {
  switch (reduction) {
    case Reduction::kAnd:
      return reduce_blocks<Number, And>;
    case Reduction::kOr:
      return reduce_blocks<Number, Or>;
    case Reduction::kXor:
      return reduce_blocks<Number, Xor>;
    default:
      return nullptr;
  }
}

template <class T>
Reducer integer_reducer(Reduction reduction) {
  const Reducer arithmetic = arithmetic_reducer<Plain<T>>(reduction);
  return arithmetic != nullptr ? arithmetic : bitwise_reducer<Plain<T>>(reduction);
}

Reducer bool_reducer(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMax:
      return bitwise_reducer<Bool>(Reduction::kOr);
    case Reduction::kProduct:
    case Reduction::kMin:
      return bitwise_reducer<Bool>(Reduction::kAnd);
    default:
      return bitwise_reducer<Bool>(reduction);
  }
}

Reducer reducer_of(ElementType type, Reduction reduction) {
  switch (type) {
    case ElementType::kF64:
      return floating_reducer<Plain<double>>(reduction);
    case ElementType::kF32:
      return floating_reducer<Plain<float>>(reduction);
    case ElementType::kF16:
      return floating_reducer<Half>(reduction);
    case ElementType::kBf16:
      return floating_reducer<Bfloat16>(reduction);
    case ElementType::kI64:
      return integer_reducer<std::int64_t>(reduction);
    case ElementType::kI32:
      return integer_reducer<std::int32_t>(reduction);
    case ElementType::kI16:
      return integer_reducer<std::int16_t>(reduction);
    case ElementType::kI8:
      return integer_reducer<std::int8_t>(reduction);
    case ElementType::kU8:
      return integer_reducer<std::uint8_t>(reduction);
    case ElementType::kBool:
      return bool_reducer(reduction);
  }
  return nullptr;
}

}  // namespace

float float_of_half(std::uint16_t bits) {
  return widened_half(bits);
}
std::uint16_t half_of_float(float value) {
  return rounded_half(value);
}
float float_of_bfloat16(std::uint16_t bits) {
  return widened_bfloat16(bits);
}
std::uint16_t bfloat16_of_float(float value) {
  return rounded_bfloat16(value);
}

bool can_reduce(ElementType type, Reduction reduction) {
  return reducer_of(type, reduction) != nullptr;
}

void check_reduction(const OperationDescriptor& operation) {
  if (can_reduce(operation.type, operation.reduction)) return;
  throw std::invalid_argument("the reduction '" + name_of(operation.reduction) + "' is not defined for " +
                              std::string(name_of(operation.type)) +
                              " elements. Averages need a floating-point type, and bitwise reductions need integers");
}

void reduce_in_order(ElementType type, Reduction reduction, std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> outputs, std::size_t elements) {
  check(!inputs.empty(), "a reduction needs the input of at least one rank");
  const Reducer reducer = reducer_of(type, reduction);
  check(reducer != nullptr, "this reduction is not defined for this element type");
  reducer(inputs, outputs, elements);
}

}  // namespace ddprun::trainer::collectives
