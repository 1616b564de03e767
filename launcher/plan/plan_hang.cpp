// Implementation of plan_hang.hpp: one reader for the value of --hang-timeout.
#include "launcher/plan/plan_hang.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "common/base/nearest.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

constexpr double kLongestLimit = 1e7;       // seconds
constexpr double kShortestOfTrainer = 1.0;  // ddptrain's workers report a step at most every 0.4 s

std::string seconds_text(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(time.count()) / 1000);
  return text;
}

class HangTimeoutReader {
 public:
  HangTimeoutReader(const Setting& setting, WorkerKind workers) : setting_(setting), workers_(workers) {}

  HangLimits read() {
    limits_.watch = true;
    if (setting_.value == "off") return {};
    if (setting_.value == "auto" && workers_ == WorkerKind::kTrainer) return limits_;
    for (std::string_view rest = setting_.value;;) {
      const std::size_t comma = rest.find(',');
      take(rest.substr(0, comma));
      if (comma == std::string_view::npos) return limits_;
      rest.remove_prefix(comma + 1);
    }
  }

 private:
  void take(std::string_view word) {
    const std::size_t equals = word.find('=');
    const auto seconds = parse_decimal(equals == std::string_view::npos ? word : word.substr(equals + 1));
    if (!seconds || !(*seconds > 0) || *seconds > kLongestLimit) refuse();
    if (workers_ == WorkerKind::kTrainer && *seconds < kShortestOfTrainer) refuse();
    const auto time = std::chrono::milliseconds(std::max(1LL, nearest(*seconds * 1000)));
    if (equals == std::string_view::npos) {
      for (std::size_t i = 0; i < kActivities; ++i)
        if (i != static_cast<std::size_t>(Activity::kStart)) limits_.given[i] = time;
      return;
    }
    const auto name = std::find(kActivityNames.begin(), kActivityNames.end(), word.substr(0, equals));
    if (name == kActivityNames.end() || workers_ == WorkerKind::kScript) refuse();
    limits_.given[static_cast<std::size_t>(name - kActivityNames.begin())] = time;
  }

  [[noreturn]] void refuse() const {
    ddprun::refuse(
        "hang-timeout", setting_,
        workers_ == WorkerKind::kScript
            ? "seconds without output of any worker, or off (a script shows nothing else to go by)"
            : "auto, off, seconds (at least 1), or a list of start=, step=, evaluate=, save= and end= with seconds, such as "
              "step=60,save=300");
  }

  const Setting& setting_;
  WorkerKind workers_;
  HangLimits limits_;
};

}  // namespace

HangLimits hang_limits_of(const Setting* setting, WorkerKind workers) {
  if (setting == nullptr) return {.watch = workers == WorkerKind::kTrainer, .given = {}};
  return HangTimeoutReader(*setting, workers).read();
}

std::string describe(const HangLimits& limits) {
  if (!limits.watch) return "off";
  std::string text;
  for (std::size_t i = 0; i < kActivities; ++i) {
    if (!limits.given[i]) continue;
    text += (text.empty() ? "" : ", ") + std::string(kActivityNames[i]) + " " + seconds_text(*limits.given[i]) + " s";
  }
  if (text.empty()) return "learned from the run";
  const bool all = std::all_of(limits.given.begin(), limits.given.end(), [](const auto& limit) { return limit.has_value(); });
  return text + (all ? "" : ", others learned from the run");
}

}  // namespace ddprun
