#include "launcher/events/progress.hpp"

#include <algorithm>

#include "common/base/printable.hpp"
#include "common/base/rounding.hpp"
#include "launcher/events/printf_text.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::int64_t kSpeedInterval = kNsPerSecond;  // shorter intervals between heartbeats are too inaccurate for a speed
constexpr std::int64_t kLossMaxAge = 5 * kNsPerSecond;

double seconds_from(std::int64_t begin_ns, std::int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) / static_cast<double>(kNsPerSecond);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds > 0)) return "0.0 s";
  if (seconds < 9.95) return printed("%.1f s", seconds);
  const long long s = round_to_nearest(std::min(seconds, 1e12));
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
  const bool again = first_ && progress.step < last_.step;
  last_ = {.step = progress.step, .samples = progress.samples, .time_ns = time_ns};
  if (!first_ || again) first_ = since_ = last_;
  const channel::Progress before = again ? channel::Progress{} : newest_;
  newest_ = progress;
  if (progress.loss) loss_at_ = last_;
  if (!newest_.loss) newest_.loss = before.loss;
  if (!newest_.lr) newest_.lr = before.lr;
  if (newest_.figures.empty()) newest_.figures = before.figures;
  if (progress.samples_per_s) {
    since_ = last_;
  } else if (time_ns - since_.time_ns >= kSpeedInterval && last_.samples > since_.samples) {
    newest_.samples_per_s = static_cast<double>(last_.samples - since_.samples) / seconds_from(since_.time_ns, time_ns);
    since_ = last_;
  } else {
    newest_.samples_per_s = before.samples_per_s;
  }
}

ProgressShown ProgressMeter::shown() const {
  ProgressShown shown{.progress = newest_, .seconds_left = seconds_left(), .loss_step = {}};
  if (newest_.loss && last_.time_ns - loss_at_.time_ns > kLossMaxAge) shown.loss_step = loss_at_.step;
  return shown;
}

std::optional<double> ProgressMeter::seconds_left() const {
  if (newest_.steps_total <= 0) return std::nullopt;  // a script may not know its number of steps
  if (!first_ || last_.step <= first_->step || last_.time_ns <= first_->time_ns) return std::nullopt;
  const double seconds_per_step = seconds_from(first_->time_ns, last_.time_ns) / static_cast<double>(last_.step - first_->step);
  return std::max(0.0, seconds_per_step * static_cast<double>(newest_.steps_total - last_.step));
}

std::string progress_line(const ProgressShown& shown) {
  const channel::Progress& progress = shown.progress;
  std::string text;
  if (progress.epochs > 0) {
    text +=
        "epoch " + std::to_string(std::min(progress.epoch + 1, progress.epochs)) + "/" + std::to_string(progress.epochs) + "  ";
  }
  text += "step " + format_count(progress.step);
  if (progress.steps_total > 0) text += "/" + format_count(progress.steps_total);
  if (progress.loss) text += printed("  loss %.4f", *progress.loss);
  if (shown.loss_step) text += " at step " + format_count(*shown.loss_step);
  for (const Metric& figure : progress.figures) text += "  " + printable(figure.name) + printed(" %.4g", figure.value);
  if (progress.samples_per_s) text += "  " + format_count(round_to_nearest(*progress.samples_per_s)) + " samples/s";
  if (shown.seconds_left) text += "  " + format_duration(*shown.seconds_left) + " left";
  return text;
}

std::string progress_bar(const ProgressShown& shown, int columns) {
  const channel::Progress& progress = shown.progress;
  std::string text = progress_line(shown);
  const std::size_t space = static_cast<std::size_t>(std::max(columns - 1, 0));
  constexpr std::size_t kMinBarWidth = 14, kMaxBarWidth = 32;
  if (text.size() + kMinBarWidth <= space && progress.steps_total > 0) {
    const std::size_t width = std::min(space - text.size(), kMaxBarWidth) - 4;  // "[", "]" and two spaces need four columns
    const double share = std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.steps_total), 0.0, 1.0);
    const auto full = static_cast<std::size_t>(share * static_cast<double>(width));
    std::string bar = "[";
    bar.append(full, '#').append(width - full, '.').append("]  ").append(text);
    text = std::move(bar);
  }
  if (text.size() > space) text.resize(space);
  return text;
}

}  // namespace ddprun
