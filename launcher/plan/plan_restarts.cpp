// Implementation of plan_restarts.hpp. It reads the options for restarts, signals, hang time limits, and shell commands that
// run on events.
#include "launcher/plan/plan_restarts.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/fault_injection.hpp"
#include "common/base/rounding.hpp"
#include "common/base/signal_name.hpp"
#include "common/base/split.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/plan/plan_network.hpp"
#include "launcher/plan/plan_program.hpp"
#include "launcher/plan/restart_policy_file.hpp"

namespace ddprun {
namespace {

constexpr int kDefaultRestarts = 3;

void choose_command(Plan& plan, const Settings& settings, std::string_view option, std::string& command) {
  const Setting* setting = settings.find(option);
  if (setting == nullptr) return;
  if (setting->value.find_first_not_of(' ') == std::string::npos) refuse(option, *setting, "a shell command");
  command = setting->value;
  plan.record(option, *setting);
}

int signal_of(std::string_view name, const Setting& setting) {
  std::string_view bare = without_spaces_around(name);
  if (bare.starts_with("SIG")) bare.remove_prefix(3);
  for (int number = 1; number < NSIG; ++number) {
    if (bare.empty() || bare != signal_abbreviation(number)) continue;
    if (number == SIGKILL || number == SIGSTOP || number == SIGCHLD) break;
    return number;
  }
  refuse("signals-to-handle", setting,
         "names of signals that can be caught, such as SIGTERM,SIGINT, not '" + std::string(name) + "'");
}

constexpr double kMaxLimitSeconds = 1e7;
// a smaller limit could be exceeded without a hang, since ddptrain's workers report a step only every 0.4 s
constexpr double kMinTrainerSeconds = 1.0;

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
    for (const std::string_view word : split(setting_.value, ',')) take(word);
    return limits_;
  }

 private:
  void take(std::string_view word) {
    const std::size_t equals = word.find('=');
    const auto seconds = parse_decimal(equals == std::string_view::npos ? word : word.substr(equals + 1));
    if (!seconds || !(*seconds > 0) || *seconds > kMaxLimitSeconds) refuse();
    if (workers_ == WorkerKind::kTrainer && *seconds < kMinTrainerSeconds) refuse();
    const auto time = std::chrono::milliseconds(std::max(1LL, round_to_nearest(*seconds * 1000)));
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
            ? "off or a number of seconds (a script counts as hung if no worker prints anything for that time)"
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

void choose_restarts(Plan& plan, const Settings& settings, const std::filesystem::path& cwd) {
  const Setting* setting = settings.find("max-restarts");
  std::string source = "default";
  if (setting != nullptr && setting->value != "auto") {
    plan.max_restarts = static_cast<int>(settings.integer("max-restarts", 0, 1000000));
    source = setting->source;
  } else if (setting != nullptr || plan.trains()) {
    plan.max_restarts = kDefaultRestarts;
    plan.refill_by_progress = true;
    if (setting != nullptr) source = setting->source;
  }
  if (const Setting* policy = settings.find("restart-policy")) {
    const RestartPolicyFile file = load_restart_policy(absolute_in(cwd, policy->value));
    if (setting == nullptr && file.max_restarts) {
      plan.max_restarts = *file.max_restarts;
      plan.refill_by_progress = file.refill_by_progress.value_or(false);
      source = policy->value;
    }
    plan.restart_rules = file.rules;
    plan.restart_policy_text = file.text;
    const std::string rules = describe(file.rules);
    plan.record("restart_policy", rules.empty() ? "the default rules" : rules, policy->value);
  }
  plan.record("max_restarts", std::to_string(plan.max_restarts) + (plan.refill_by_progress ? ", refilled by progress" : ""),
              source);
}

void choose_stopping(Plan& plan, const Settings& settings) {
  const double seconds = settings.number("shutdown-timeout", 0, 1e6);
  plan.shutdown_timeout = std::chrono::milliseconds(round_to_nearest(seconds * 1000));
  plan.record("shutdown_timeout", settings.text("shutdown-timeout") + " s", settings.find("shutdown-timeout")->source);

  const Setting& setting = *settings.find("signals-to-handle");
  std::string_view rest = setting.value;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    plan.signals_to_handle.push_back(signal_of(rest.substr(0, comma), setting));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  plan.record("signals_to_handle", setting.value, setting.source);

  if (const Setting* chaos = settings.find("chaos")) {
    if (!plan.trains())
      throw UsageError("--chaos (" + chaos->source + ") requires a train.json: ddprun cannot count the steps of a script");
    parse_faults(chaos->value, "--chaos");
    plan.chaos = chaos->value;
    plan.record("chaos", chaos->value, chaos->source);
  }
  choose_command(plan, settings, "on-failure", plan.on_failure);
  choose_command(plan, settings, "on-checkpoint", plan.on_checkpoint);
  choose_metrics_port(plan, settings);
  const Setting* hang = settings.find("hang-timeout");
  plan.hang = hang_limits_of(hang, plan.trains() ? WorkerKind::kTrainer : WorkerKind::kScript);
  plan.record("hang_timeout", plan.trains() || !plan.hang.watch ? describe(plan.hang) : hang->value + " s without output",
              hang != nullptr ? hang->source : "default");
}

}  // namespace ddprun
