// Implementation of stuck_workers.hpp.
#include "launcher/workers/stuck_workers.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include "common/base/decimal.hpp"
#include "common/base/nearest.hpp"

namespace ddprun {

char process_state(long pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // The line has the form: pid (name) state ... The name may contain any character, so the last ')' ends it.
  const std::size_t name_end = line.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '\0' : line[name_end + 2];
}

std::chrono::milliseconds stuck_timeout_of(const std::optional<std::string_view>& text) {
  if (!text) return {};
  const auto seconds = leading_decimal(*text);
  if (!seconds || seconds->length != text->size() || !(seconds->value > 0) || seconds->value > 1e9) return {};
  return std::chrono::milliseconds(std::max(1LL, nearest(seconds->value * 1000)));
}

bool StuckWatch::see(int rank, char state, Time now) {
  if (state != 'D') {
    since_.erase(rank);
    return false;
  }
  const auto [since, first_time] = since_.emplace(rank, now);
  // Time::max() marks a worker that was already reported
  if (since->second == Time::max() || now - since->second < limit_) return false;
  since->second = Time::max();
  return true;
}

std::chrono::milliseconds StuckWatch::interval() const {
  return std::clamp(limit_ / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(5000));
}

}  // namespace ddprun
