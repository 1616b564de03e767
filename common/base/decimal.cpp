#include "common/base/decimal.hpp"

#include <cstdlib>
#include <string>

namespace ddprun {

std::optional<Decimal> leading_decimal(std::string_view text) {
  // strtod() would also take hexadecimal digits, "inf", "nan", spaces and a plus sign.
  text = text.substr(0, text.find_first_not_of("0123456789.eE+-"));
  if (text.empty() || text.front() == '+') return std::nullopt;
  const std::string ended(text);  // strtod() needs a terminated string
  char* stop = nullptr;
  const double value = std::strtod(ended.c_str(), &stop);  // safe: ddprun always uses the "C" locale
  if (stop == ended.c_str()) return std::nullopt;
  return Decimal{value, static_cast<std::size_t>(stop - ended.c_str())};
}

}  // namespace ddprun
