#include "launcher/report/step_parts.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string_view>
#include <system_error>

#include "launcher/events/progress.hpp"

namespace ddprun {

void StepParts::take(const ReportJson& line) {
  if (report_text_at(line, "event") != "step" || !report_value(line, "step").is_number()) return;
  peak_memory_ = report_integer_at(line, "peak_memory_bytes", peak_memory_);
  largest_peak_memory_ = report_integer_at(line, "largest_peak_memory_bytes", largest_peak_memory_);
  skipped_ = report_integer_at(line, "skipped_steps", skipped_);
  Line found{.after = step_before_, .step = report_integer_at(line, "step")};
  step_before_ = found.step;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const ReportJson& value = report_value(line, kNames[i]);
    if (!value.is_number()) return;
    found.ms[i] = value.get<double>();
  }
  if (found.step <= found.after) return;
  if (lines_.size() == kLines) lines_.pop_front();
  lines_.push_back(found);
}

std::string StepParts::text() const {
  if (lines_.empty()) return {};
  std::array<double, kNames.size()> sums{};
  double steps = 0;
  for (const Line& line : lines_) {
    const auto count = static_cast<double>(line.step - line.after);
    steps += count;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += line.ms[i] * count;
  }
  const double whole = std::accumulate(sums.begin(), sums.end(), 0.0);
  if (!(whole > 0)) return {};
  char number[32];
  std::snprintf(number, sizeof number, "%.3g ms: ", whole / steps);
  std::string text = number;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::string_view key = kNames[i], name = key.substr(0, key.find('_'));
    std::snprintf(number, sizeof number, " %.0f %%", 100 * std::max(0.0, sums[i]) / whole);
    text.append(i > 0 ? ", " : "").append(name).append(number);
  }
  const std::int64_t first = lines_.front().after + 1, last = lines_.back().step;
  return text + (first == last ? " in step " : " in steps " + format_count(first) + " to ") + format_count(last);
}

std::string StepParts::memory_text() const {
  constexpr int kMib = 20;
  if (peak_memory_ <= 0 || largest_peak_memory_ <= 0) return {};
  return format_count(peak_memory_ >> kMib) + " MiB on rank 0, " + format_count(largest_peak_memory_ >> kMib) +
         " MiB on the rank with the highest peak";
}

std::string StepParts::skipped_text() const {
  if (skipped_ <= 0) return {};
  return format_count(skipped_) + (skipped_ == 1 ? " step" : " steps") +
         " without an update: a loss or a gradient was not finite";
}

StepParts step_parts_of(const std::filesystem::path& metrics) {
  constexpr std::streamoff kRead = 256 << 10;
  StepParts parts;
  std::error_code none;
  if (!std::filesystem::is_regular_file(metrics, none)) return parts;
  std::ifstream file(metrics, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  std::string line;
  file.seekg(std::max<std::streamoff>(0, size - kRead));
  if (size > kRead) std::getline(file, line);  // skips the first line, which may be incomplete
  bool in_whole_lines = size <= kRead;
  while (std::getline(file, line)) {
    const ReportJson read = ReportJson::parse(line, nullptr, false);
    if (in_whole_lines) {
      parts.take(read);
    } else if (report_text_at(read, "event") == "step") {
      parts.begin_after(report_integer_at(read, "step"));
      in_whole_lines = true;
    }
  }
  return parts;
}

}  // namespace ddprun
