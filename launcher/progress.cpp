// See progress.hpp.
#include "launcher/progress.hpp"

#include <algorithm>
#include <cmath>

#include "launcher/printed.hpp"

namespace ddprun {
namespace {}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds > 0)) return "0.0 s";
  if (seconds < 9.95) return printed("%.1f s", seconds);
  const long long s = std::llround(std::min(seconds, 1e12));
  if (s < 60) return printed("%lld s", s);
  if (s < 3600) return printed("%lld min %02lld s", s / 60, s % 60);
  if (s < 86400) return printed("%lld h %02lld min", s / 3600, s % 3600 / 60);
  return printed("%lld d %02lld h", s / 86400, s % 86400 / 3600);
}

std::string format_count(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string grouped;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool group_begins = i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-';
    if (group_begins) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

void ProgressMeter::add(const channel::Progress& progress, std::int64_t time_ns) {
  last_ = {progress.step, time_ns};
  steps_total_ = progress.steps_total;
  if (!first_ || progress.step < first_->step) first_ = last_;
}

std::optional<double> ProgressMeter::seconds_left() const {
  if (!first_ || last_.step <= first_->step || last_.time_ns <= first_->time_ns) return std::nullopt;
  const double seconds_a_step =
      static_cast<double>(last_.time_ns - first_->time_ns) / 1e9 / static_cast<double>(last_.step - first_->step);
  return std::max(0.0, seconds_a_step * static_cast<double>(steps_total_ - last_.step));
}

std::string progress_line(const channel::Progress& progress, std::optional<double> seconds_left) {
  std::string text;
  if (progress.epochs > 0) {
    text +=
        "epoch " + std::to_string(std::min(progress.epoch + 1, progress.epochs)) + "/" + std::to_string(progress.epochs) + "  ";
  }
  text += "step " + format_count(progress.step);
  if (progress.steps_total > 0) text += "/" + format_count(progress.steps_total);
  if (progress.loss) text += printed("  loss %.4f", *progress.loss);
  if (progress.samples_per_s) text += "  " + format_count(std::llround(*progress.samples_per_s)) + " samples/s";
  if (seconds_left) text += "  " + format_duration(*seconds_left) + " left";
  return text;
}

std::string progress_bar(const channel::Progress& progress, std::optional<double> seconds_left, int columns) {
  std::string text = progress_line(progress, seconds_left);
  const std::size_t room = static_cast<std::size_t>(std::max(columns - 1, 0));
  constexpr std::size_t kNarrowest = 14, kWidest = 32;
  if (text.size() + kNarrowest <= room && progress.steps_total > 0) {
    const std::size_t width = std::min(room - text.size(), kWidest) - 4;  // "[", "]" and two spaces
    const double share = std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.steps_total), 0.0, 1.0);
    const auto full = static_cast<std::size_t>(share * static_cast<double>(width));
    std::string bar = "[";
    bar.append(full, '#').append(width - full, '.').append("]  ").append(text);
    text = std::move(bar);
  }
  if (text.size() > room) text.resize(room);
  return text;
}

}  // namespace ddprun
