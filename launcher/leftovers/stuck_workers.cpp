#include "launcher/leftovers/stuck_workers.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/numbers.hpp"
#include "common/base/rounding.hpp"
#include "launcher/leftovers/process_tree.hpp"

namespace ddprun {

char process_state(long pid) {
  const std::vector<std::string> fields = guardian::stat_of(static_cast<pid_t>(pid));
  return fields.empty() ? '\0' : fields[0][0];
}

std::chrono::milliseconds stuck_timeout_of(const std::optional<std::string_view>& text) {
  if (!text) return {};
  const auto seconds = leading_decimal(*text);
  if (!seconds || seconds->length != text->size() || !(seconds->value > 0) || seconds->value > 1e9) return {};
  return std::chrono::milliseconds(std::max(1LL, round_to_nearest(seconds->value * 1000)));
}

bool StuckWatch::observe(int rank, char state, Time now) {
  if (state != 'D') {
    since_.erase(rank);
    return false;
  }
  const auto [since, first_time] = since_.emplace(rank, now);
  // Time::max() marks a worker that was already reported.
  if (since->second == Time::max() || now - since->second < limit_) return false;
  since->second = Time::max();
  return true;
}

std::chrono::milliseconds StuckWatch::interval() const {
  return std::clamp(limit_ / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(5000));
}

}  // namespace ddprun
