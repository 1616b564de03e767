#include "launcher/report_page/curves.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

namespace ddprun {
namespace {

// The metrics that ddptrain writes in every step line, in addition to the parts of the step time. They are drawn elsewhere or
// not at all. All other metrics come from a script, and each gets its own chart.
constexpr std::string_view kStepMetrics[] = {"loss",
                                             "lr",
                                             "gradient_norm",
                                             "samples_per_s",
                                             "flops_per_s",
                                             "mfu",
                                             "skipped_steps",
                                             "peak_memory_bytes",
                                             "largest_peak_memory_bytes"};

void add_point(std::vector<svg::Point>& points, double x, const ReportJson& value) {
  if (value.is_number() && std::isfinite(value.get<double>())) points.push_back({x, value.get<double>()});
}

bool has_other_place(const std::string& metric) {
  return std::ranges::find(kStepMetrics, metric) != std::end(kStepMetrics) ||
         std::ranges::find(StepParts::kNames, metric) != StepParts::kNames.end();
}

}  // namespace

void Curves::take(const std::string& line) {
  const ReportJson event = ReportJson::parse(line, nullptr, false);
  const std::string kind = report_text_at(event, "event");
  if (!report_value(event, "step").is_number()) return;
  const double step = report_number_at(event, "step");
  if (kind == "step") {
    parts.take(event);
    add_point(loss, step, report_value(event, "loss"));
    add_point(speed, step, report_value(event, "samples_per_s"));
    for (const Metric& metric : evaluation_metrics(event)) {
      if (!has_other_place(metric.name)) add_point(evaluated[metric.name], step, report_value(event, metric.name.c_str()));
    }
  } else if (kind == "eval") {
    for (const Metric& metric : evaluation_metrics(event)) {
      if (metric.name != "loss") add_point(evaluated[metric.name], step, metric.value);
    }
  } else if (kind == "restart" || kind == "resume" || kind == "regroup") {
    resumed.push_back(step);
  }
}

Curves curves_of(std::istream& metrics) {
  Curves curves;
  for (std::string line; std::getline(metrics, line);) curves.take(line);
  return curves;
}

const Curves& CurveReader::read() {
  std::error_code none;
  std::ifstream in;
  if (std::filesystem::is_regular_file(file_, none)) in.open(file_, std::ios::binary);
  std::string before(last_.size(), '\0');
  in.seekg(read_ - static_cast<std::int64_t>(last_.size()));
  in.read(before.data(), static_cast<std::streamsize>(before.size()));
  if (!in || before != last_) {
    curves_ = {};
    read_ = 0;
    last_.clear();
    in.clear();
    in.seekg(0);
  }
  for (std::string line; std::getline(in, line) && !in.eof();) {
    curves_.take(line);
    last_ = std::move(line) + '\n';
    read_ += static_cast<std::int64_t>(last_.size());
  }
  return curves_;
}

}  // namespace ddprun
