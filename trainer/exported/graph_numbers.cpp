// Implementation of graph_numbers.hpp.
#include "trainer/exported/graph_numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace ddprun::trainer {
namespace {

constexpr const char* kOverflow = "has a result that does not fit into 64 bits";

// + - * of two integers with an overflow check; of floating-point numbers without one.
template <class Number>
Number sum(Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {
    if (__builtin_add_overflow(a, b, &a)) throw std::domain_error(kOverflow);
    return a;
  } else {
    return a + b;
  }
}

template <class Number>
Number difference(Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {
    if (__builtin_sub_overflow(a, b, &a)) throw std::domain_error(kOverflow);
    return a;
  } else {
    return a - b;
  }
}

template <class Number>
Number product(Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {
    if (__builtin_mul_overflow(a, b, &a)) throw std::domain_error(kOverflow);
    return a;
  } else {
    return a * b;
  }
}

// a mod b with the sign of b, as in Python. Unlike a - floor(a / b) * b, no intermediate result can overflow.
std::int64_t floor_remainder(std::int64_t a, std::int64_t b) {
  if (b == 0) throw std::domain_error("divides by 0");
  if (b == -1) return 0;
  const std::int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) throw std::domain_error("divides by 0");
  if (a == std::numeric_limits<std::int64_t>::min() && b == -1) throw std::domain_error(kOverflow);
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

template <class Integers, class Doubles>
c10::IValue arithmetic(const std::vector<c10::IValue>& of, Integers integers, Doubles doubles) {
  if (of[0].isInt() && of[1].isInt()) return integers(of[0].toInt(), of[1].toInt());
  return doubles(of[0].toScalar().toDouble(), of[1].toScalar().toDouble());
}

#define SAME_FOR_BOTH(name, expression)                                              \
  Calculation {                                                                      \
    name, 2, [](const std::vector<c10::IValue>& of) {                                \
      const auto calculate = [](auto a, auto b) { return c10::IValue(expression); }; \
      return arithmetic(of, calculate, calculate);                                   \
    }                                                                                \
  }

constexpr std::array<Calculation, 16> kCalculations{
    {SAME_FOR_BOTH("add", sum(a, b)),
     SAME_FOR_BOTH("sub", difference(a, b)),
     SAME_FOR_BOTH("mul", product(a, b)),
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
        return arithmetic(
            of, [](std::int64_t a, std::int64_t b) { return c10::IValue(floor_quotient(a, b)); },
            [](double a, double b) { return c10::IValue(std::floor(a / b)); });
      }},
     {"mod", 2,
      [](const std::vector<c10::IValue>& of) {
        return arithmetic(
            of, [](std::int64_t a, std::int64_t b) { return c10::IValue(floor_remainder(a, b)); },
            [](double a, double b) { return c10::IValue(a - std::floor(a / b) * b); });
      }},
     {"neg", 1,
      [](const std::vector<c10::IValue>& of) {
        return of[0].isInt() ? c10::IValue(difference(std::int64_t{0}, of[0].toInt()))
                             : c10::IValue(-of[0].toScalar().toDouble());
      }},
     {"float", 1, [](const std::vector<c10::IValue>& of) { return c10::IValue(of[0].toScalar().toDouble()); }}}};
#undef SAME_FOR_BOTH

}  // namespace

const Calculation* find_calculation(std::string_view name) {
  const auto found = std::ranges::find(kCalculations, name, &Calculation::name);
  return found == kCalculations.end() ? nullptr : &*found;
}

}  // namespace ddprun::trainer
