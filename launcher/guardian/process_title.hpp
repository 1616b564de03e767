// Changes the arguments that ps and pgrep -f show for a process that was forked without exec. Without this, the process would
// show its parent's arguments, and `pgrep -f train.py` would find it too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/machine/kernel_file.hpp"

namespace ddprun::guardian {

// Overwrites this process's arguments in memory. The title is cut to the length of all arguments together. Has no effect if
// /proc is not mounted.
inline void set_process_title(std::string_view title) {
  const std::string stat = read_kernel_file("/proc/self/stat").value_or("");  // a stream would cost 15 page faults
  // Index of the field in /proc/self/stat that has the start address of the arguments. The next field has their end address.
  constexpr int kArgumentsBegin = 48;
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return;
  std::size_t at = name_end + 2;
  // If `at` is 0, the line has fewer fields than expected.
  for (int field = 3; field < kArgumentsBegin && at != 0; ++field) at = stat.find(' ', at) + 1;
  if (at == 0) return;
  char* next = nullptr;
  const std::uintptr_t begin = std::strtoull(stat.c_str() + at, &next, 10);
  const std::uintptr_t end = std::strtoull(next, nullptr, 10);
  if (begin == 0 || end <= begin) return;
  auto* const arguments = reinterpret_cast<char*>(begin);  // NOLINT(performance-no-int-to-ptr): the kernel gives a number
  const std::size_t size = end - begin;
  const std::size_t length = std::min(title.size(), size - 1);
  std::fill_n(std::copy_n(title.begin(), length, arguments), size - length, '\0');
}

}  // namespace ddprun::guardian
