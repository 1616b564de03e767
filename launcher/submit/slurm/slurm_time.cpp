#include "launcher/submit/slurm/slurm_time.hpp"

#include <algorithm>
#include <vector>

#include "common/base/split.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kMinute = 60;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kDay = 24 * kHour;
constexpr std::int64_t kMaxNumber = 99'999'999;  // limit for one part, so that the sum fits into 64 bits

// Returns the numbers between the colons. The result is empty if a part is not a number.
std::vector<std::int64_t> numbers_in(std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view part : split(text, ':')) {
    const auto number = parse_whole(part);
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (!digits || !number || *number > kMaxNumber) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

// std::ceil() would need the library libm, which delays every start of ddprun.
long long rounded_up(double number) {
  const auto whole = static_cast<long long>(number);
  return static_cast<double>(whole) < number ? whole + 1 : whole;
}

std::string seconds_text(double seconds) {
  constexpr double kMax = 1e12;
  return std::to_string(rounded_up(std::min(seconds, kMax))) + " s";
}

}  // namespace

std::optional<std::chrono::seconds> parse_slurm_time(std::string_view text) {
  if (text == "UNLIMITED" || text == "INFINITE" || text == "unlimited" || text == "infinite") return kNoTimeLimit;
  std::int64_t days = 0;
  const std::size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const std::vector<std::int64_t> day = numbers_in(text.substr(0, dash));
    if (day.size() != 1) return std::nullopt;
    days = day[0];
    text.remove_prefix(dash + 1);
  }
  const std::vector<std::int64_t> parts = numbers_in(text);
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  // If the text has days, the first number after them is hours. If it has no days, one number is minutes, and two numbers are
  // minutes and seconds.
  const bool starts_with_hours = dash != std::string_view::npos || parts.size() == 3;
  std::int64_t unit = starts_with_hours ? kHour : kMinute;
  std::int64_t total = days * kDay;
  for (const std::int64_t part : parts) {
    total += part * unit;
    unit /= 60;
  }
  return std::chrono::seconds(total);
}

std::chrono::seconds default_shutdown(std::chrono::seconds signal_before) {
  const std::chrono::seconds reserve = std::max(std::chrono::seconds(5), signal_before / 4);
  return std::max(std::chrono::seconds(1), signal_before - reserve);
}

std::string time_problem(const SlurmTimes& times) {
  const double signal_s = static_cast<double>(times.signal_before.count());
  const double save_s = times.save_s.value_or(0);
  const bool limited = times.limit && *times.limit != kNoTimeLimit;
  if (times.shutdown_s >= signal_s) {
    return "--shutdown-timeout is " + seconds_text(times.shutdown_s) + ", but Slurm kills the job " + seconds_text(signal_s) +
           " after its signal (--signal-before): use a longer --signal-before, or a shorter --shutdown-timeout";
  }
  if (limited && static_cast<double>(times.limit->count()) <= std::max(signal_s, save_s)) {
    return "the time limit is shorter than a save: --time is " + seconds_text(static_cast<double>(times.limit->count())) +
           ", and " + seconds_text(std::max(signal_s, save_s)) + " of it are reserved for the save" +
           (save_s > signal_s ? ", as long as the newest save took" : " (--signal-before)") + "; use a longer --time";
  }
  if (save_s > times.shutdown_s) {
    return "the newest save of this run took " + seconds_text(save_s) + ", but a save at the time limit has only " +
           seconds_text(times.shutdown_s) + " (--shutdown-timeout): use --signal-before " +
           std::to_string(rounded_up(std::min(save_s, 1e12) * 4 / 3) + 5) + " or more";
  }
  return "";
}

std::string time_warning(const SlurmTimes& times) {
  if (!times.limit || *times.limit == kNoTimeLimit) return "";
  const std::chrono::seconds trained = *times.limit - times.signal_before - kEarlySignal;
  if (trained >= kEarlySignal) return "";
  return "Slurm may send its signal up to 60 s early, so a start of this job may train for only " +
         std::to_string(std::max<long long>(0, trained.count())) + " s before it saves";
}

}  // namespace ddprun
