#include "launcher/events/printf_text.hpp"

#include <cstdarg>
#include <cstddef>
#include <cstdio>

#include "common/base/check.hpp"

namespace ddprun {

std::string printed(const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  std::va_list again;
  va_copy(again, values);
  const int size = std::vsnprintf(nullptr, 0, format, values);
  va_end(values);
  check(size >= 0, "a number cannot be printed in its format");
  std::string text(static_cast<std::size_t>(size), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

}  // namespace ddprun
