// Metrics derived from a report.json, for report_text.cpp and launcher/report_page: how the run used its time, how often each
// failure occurred, and the rounds on a time line. A value that is missing or has an unexpected type is skipped, since a
// different version of ddprun may have written the report. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/metric.hpp"

namespace ddprun {

using ReportJson = nlohmann::ordered_json;

// Returns the value of `key`, or a JSON null if the object lacks it.
const ReportJson& report_value(const ReportJson& object, const char* key);
std::string report_text(const ReportJson& value);  // the string; "" if the value is not a string
std::int64_t report_integer(const ReportJson& value, std::int64_t otherwise = 0);
double report_number(const ReportJson& value);
// These three functions convert the value of `key` in `object`.
inline std::string report_text_at(const ReportJson& object, const char* key) {
  return report_text(report_value(object, key));
}
inline std::int64_t report_integer_at(const ReportJson& object, const char* key, std::int64_t otherwise = 0) {
  return report_integer(report_value(object, key), otherwise);
}
inline double report_number_at(const ReportJson& object, const char* key) {
  return report_number(report_value(object, key));
}

// Returns the metrics of an evaluation, from a report or from a line of metrics.jsonl. The metrics are all numbers except the
// fields that every line has. A null becomes NaN: JSON cannot represent a value that is not finite, so null was written
// instead.
MetricList evaluation_metrics(const ReportJson& evaluation);

// Returns a text such as "rank 3", or "the node" if the failure belongs to no worker.
std::string failed_rank_text(const ReportJson& failure);

// Describes when a rank became a straggler, such as "rank 1, compute: 41.2 ms per step, the others 30.1 ms, at step 370".
// Returns "" for an entry about the recovery of a straggler.
std::string straggler_text(const ReportJson& straggler);

struct RoundSpan {
  const ReportJson* round = nullptr;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  bool failed = false;
  bool runs = false;  // true if the job is running and this is its newest round
};

struct ReportMetrics {
  // How the run used its time: the name and the seconds of each part, in the order of the report. Parts of 0 s are omitted.
  std::vector<std::pair<std::string, double>> time;
  // False if no worker has reported a step. The start of training and the repeated work are then unknown.
  bool has_steps = false;
  double total_s = 0;
  double useful_s = 0;  // training and evaluation in seconds, without the time of lost steps
  double lost_s = 0;
  std::int64_t steps_lost = 0;
  std::int64_t failures = 0;
  std::vector<std::pair<std::string, std::int64_t>> causes;  // causes and their counts, most frequent first
  // The ranks that failed first in a round, such as "rank 3 on b", with their counts, sorted by count in descending order.
  std::vector<std::pair<std::string, std::int64_t>> ranks;
  std::vector<RoundSpan> rounds;  // sorted by time; the entries point into the report
};

// `now_ns` is the current time, if the job is running. The newest round then ends at this time, unless it has ended.
ReportMetrics metrics_of(const ReportJson& report, std::optional<std::int64_t> now_ns = {});

// Describes how the run ended. `exit` is the value of "exit" in the report.
std::string exit_text(const ReportJson& exit);

// Returns the useful fraction of the accounted time as a percentage, such as "93.1 %". Returns "" if no time was accounted or
// no step was reported.
std::string goodput_of(const ReportMetrics& figures);

}  // namespace ddprun
