#include "trainer/finite/not_finite.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ddprun::trainer {
namespace {

template <class Number>
std::optional<NotFinite> first_in(const at::Tensor& numbers) {
  const Number* const begin = numbers.const_data_ptr<Number>();
  const Number* const end = begin + numbers.numel();
  const Number* const found = std::find_if(begin, end, [](Number number) { return !std::isfinite(number); });
  if (found == end) return std::nullopt;
  NotFinite result{.index = std::vector<std::int64_t>(static_cast<std::size_t>(numbers.dim())),
                   .value = static_cast<double>(*found)};
  std::int64_t rest = found - begin;
  for (std::int64_t i = numbers.dim() - 1; i >= 0; --i) {
    result.index[static_cast<std::size_t>(i)] = rest % numbers.size(i);
    rest /= numbers.size(i);
  }
  return result;
}

}  // namespace

std::optional<NotFinite> first_not_finite(const at::Tensor& numbers) {
  if (!at::isFloatingType(numbers.scalar_type())) return std::nullopt;
  const at::Tensor whole = numbers.contiguous();
  if (whole.scalar_type() == at::kDouble) return first_in<double>(whole);
  return first_in<float>(whole.to(at::kFloat));  // float32 can represent every value of the other types
}

std::string not_finite_text(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

std::string place_text(std::span<const std::int64_t> index) {
  if (index.empty()) return "";
  if (index.size() == 1) return " in column " + std::to_string(index[0]);
  std::string text;
  for (const std::int64_t each : index) text += (text.empty() ? "" : ", ") + std::to_string(each);
  return " at [" + text + "]";
}

}  // namespace ddprun::trainer
