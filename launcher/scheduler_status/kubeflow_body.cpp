#include "launcher/scheduler_status/kubeflow_body.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/rounding.hpp"
#include "launcher/events/printf_text.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxTokenBytes = 16 << 10;
constexpr std::int64_t kMaxSeconds = 2'147'483'647;  // the server's field has 32 bits

// Returns a text such as "2026-11-29T10:30:45Z".
std::string utc_text(std::int64_t realtime_ns) {
  using namespace std::chrono;
  const sys_seconds time{floor<seconds>(nanoseconds(realtime_ns))};
  const sys_days day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return printed("%04d-%02u-%02uT%02lld:%02lld:%02lldZ", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                 static_cast<unsigned>(date.day()), static_cast<long long>(clock.hours().count()),
                 static_cast<long long>(clock.minutes().count()), static_cast<long long>(clock.seconds().count()));
}

class MetricEntries {
 public:
  // If several metrics have the same name, the first one is kept.
  void add(const std::string& name, std::string value) {
    const bool known = std::ranges::any_of(entries_, [&](const Json& entry) { return entry["name"] == name; });
    if (known || name.empty() || name.size() > kMaxStatusText || value.size() > kMaxStatusText) return;
    if (entries_.size() < kMaxStatusMetrics) entries_.push_back(Json{{"name", name}, {"value", std::move(value)}});
  }
  void add(const std::string& name, double value) { add(name, printed("%.6g", value)); }
  void add(const std::string& name, const std::optional<double>& value) {
    if (value) add(name, *value);
  }
  void drop_last() { entries_.erase(entries_.size() - 1); }
  bool empty() const { return entries_.empty(); }
  const Json& entries() const { return entries_; }

 private:
  Json entries_ = Json::array();
};

bool is_visible_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

std::string kubeflow_status(const ProgressShown& shown, const MetricList& evaluation, std::int64_t realtime_ns) {
  const channel::Progress& progress = shown.progress;
  Json status = Json::object();
  if (progress.steps_total > 0) {
    const std::int64_t step = std::clamp<std::int64_t>(progress.step, 0, progress.steps_total);
    status["progressPercentage"] =
        static_cast<std::int64_t>(100.0 * static_cast<double>(step) / static_cast<double>(progress.steps_total));
  }
  if (shown.seconds_left && std::isfinite(*shown.seconds_left)) {
    status["estimatedRemainingSeconds"] =
        round_to_nearest(std::clamp(*shown.seconds_left, 0.0, static_cast<double>(kMaxSeconds)));
  }
  MetricEntries metrics;
  metrics.add("step", std::to_string(progress.step));
  if (progress.epochs > 0) {
    metrics.add("epoch", std::to_string(std::min(progress.epoch + 1, progress.epochs)));
    metrics.add("epochs", std::to_string(progress.epochs));
  }
  metrics.add("loss", progress.loss);
  metrics.add("lr", progress.lr);
  metrics.add("samples_per_s", progress.samples_per_s);
  for (const Metric& metric : progress.figures) metrics.add(metric.name, metric.value);
  for (const Metric& metric : evaluation)
    metrics.add(metric.name.starts_with("eval_") ? metric.name : "eval_" + metric.name, metric.value);
  const auto text = [&] {
    status["metrics"] = metrics.entries();
    status["lastUpdatedTime"] = utc_text(realtime_ns);
    return Json{{"trainerStatus", status}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string body = text();
  while (body.size() > kMaxStatusBytes && !metrics.empty()) {
    metrics.drop_last();
    body = text();
  }
  return body;
}

std::optional<HttpsUrl> parse_https_url(std::string_view text) {
  constexpr std::string_view kScheme = "https://";
  if (!text.starts_with(kScheme) || text.size() > 2048 || !is_visible_ascii(text)) return std::nullopt;
  text.remove_prefix(kScheme.size());
  const std::size_t end = std::min(text.find_first_of("/?#"), text.size());
  std::string_view authority = text.substr(0, end);
  HttpsUrl url;
  if (end < text.size()) url.path = text.substr(end, text.find('#') - end);
  if (!url.path.starts_with('/')) url.path.insert(0, "/");
  if (authority.find('@') != std::string_view::npos) return std::nullopt;
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    url.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    authority.remove_prefix(colon);
  }
  if (!authority.empty()) {
    url.port = authority.substr(1);
    if (authority[0] != ':' || url.port.empty() || url.port.size() > 5 ||
        url.port.find_first_not_of("0123456789") != std::string::npos)
      return std::nullopt;
  }
  return url.host.empty() ? std::nullopt : std::optional(url);
}

std::optional<std::string> bearer_token(std::string_view content) {
  while (content.ends_with('\n') || content.ends_with('\r')) content.remove_suffix(1);
  if (content.empty() || content.size() > kMaxTokenBytes || !is_visible_ascii(content)) return std::nullopt;
  return std::string(content);
}

}  // namespace ddprun
