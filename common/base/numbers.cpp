#include "common/base/numbers.hpp"

#include <cstdlib>
#include <string>

namespace ddprun {

std::optional<Decimal> leading_decimal(std::string_view text) {
  // strtod() accepts more: hexadecimal digits, "inf", "nan", spaces and a plus sign. This line removes such text before the
  // call.
  text = text.substr(0, text.find_first_not_of("0123456789.eE+-"));
  if (text.empty() || text.front() == '+') return std::nullopt;
  const std::string ended(text);  // strtod() needs a null-terminated string
  char* stop = nullptr;
  // strtod() depends on the locale, which is always "C" in ddprun.
  const double value = std::strtod(ended.c_str(), &stop);
  if (stop == ended.c_str()) return std::nullopt;
  return Decimal{value, static_cast<std::size_t>(stop - ended.c_str())};
}

}  // namespace ddprun
