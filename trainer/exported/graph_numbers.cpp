#include "trainer/exported/graph_numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

namespace ddprun::trainer {
namespace {

// This type can hold the sum, difference and product of two 64-bit integers.
using Wide = __int128;

c10::IValue value_of(Wide number) {
  const bool fits = number >= std::numeric_limits<std::int64_t>::min() && number <= std::numeric_limits<std::int64_t>::max();
  if (!fits) throw std::domain_error("has a result that does not fit into 64 bits");
  return static_cast<std::int64_t>(number);
}
c10::IValue value_of(double number) {
  return number;
}
c10::IValue value_of(bool truth) {
  return truth;
}

// Returns a mod b with the sign of b, as in Python.
Wide floor_remainder(Wide a, Wide b) {
  if (b == 0) throw std::domain_error("divides by 0");
  const Wide remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

Wide floor_quotient(Wide a, Wide b) {
  return (a - floor_remainder(a, b)) / b;
}

template <class Integers, class Doubles>
c10::IValue arithmetic(const std::vector<c10::IValue>& of, Integers integers, Doubles doubles) {
  if (of[0].isInt() && of[1].isInt()) return value_of(integers(Wide{of[0].toInt()}, Wide{of[1].toInt()}));
  return value_of(doubles(of[0].toScalar().toDouble(), of[1].toScalar().toDouble()));
}

#define SAME_FOR_BOTH(name, expression)                                 \
  Calculation {                                                         \
    name, 2, [](const std::vector<c10::IValue>& of) {                   \
      const auto calculate = [](auto a, auto b) { return expression; }; \
      return arithmetic(of, calculate, calculate);                      \
    }                                                                   \
  }

constexpr std::array<Calculation, 16> kCalculations{
    {SAME_FOR_BOTH("add", a + b),
     SAME_FOR_BOTH("sub", a - b),
     SAME_FOR_BOTH("mul", (a * b)),
     SAME_FOR_BOTH("eq", a == b),
     SAME_FOR_BOTH("ne", a != b),
     SAME_FOR_BOTH("lt", a < b),
     SAME_FOR_BOTH("le", a <= b),
     SAME_FOR_BOTH("gt", a > b),
     SAME_FOR_BOTH("ge", a >= b),
     SAME_FOR_BOTH("max", std::max(a, b)),
     SAME_FOR_BOTH("min", std::min(a, b)),
     {"truediv", 2,
      [](const std::vector<c10::IValue>& of) {
        return c10::IValue(of[0].toScalar().toDouble() / of[1].toScalar().toDouble());
      }},
     {"floordiv", 2,
      [](const std::vector<c10::IValue>& of) {
        return arithmetic(of, floor_quotient, [](double a, double b) { return std::floor(a / b); });
      }},
     {"mod", 2,
      [](const std::vector<c10::IValue>& of) {
        return arithmetic(of, floor_remainder, [](double a, double b) { return a - std::floor(a / b) * b; });
      }},
     {"neg", 1,
      [](const std::vector<c10::IValue>& of) {
        return of[0].isInt() ? value_of(-Wide{of[0].toInt()}) : value_of(-of[0].toScalar().toDouble());
      }},
     {"float", 1, [](const std::vector<c10::IValue>& of) { return c10::IValue(of[0].toScalar().toDouble()); }}}};
#undef SAME_FOR_BOTH

}  // namespace

const Calculation* find_calculation(std::string_view name) {
  const auto found = std::ranges::find(kCalculations, name, &Calculation::name);
  return found == kCalculations.end() ? nullptr : &*found;
}

}  // namespace ddprun::trainer
