// Sets the arguments that ps and pgrep -f show for a process that was forked without exec. Otherwise these are its parent's
// arguments, and `pgrep -f train.py` would find this process instead of the job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace ddprun::guardian {

// Overwrites this process's arguments in memory. A title longer than all arguments together is cut. Without /proc nothing
// changes.
inline void set_process_title(std::string_view title) {
  std::string stat;
  std::getline(std::ifstream("/proc/self/stat"), stat);
  constexpr int kArgumentsBegin = 48;  // number of the field with the start address; the next field is the end address
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return;
  std::size_t at = name_end + 2;
  for (int field = 3; field < kArgumentsBegin && at != 0; ++field) at = stat.find(' ', at) + 1;  // 0: the line has fewer fields
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
