// Metrics derived from a report.json (for report_text.cpp and report_html.cpp): how the time was spent, the frequency of each
// failure, and the rounds on one time line. Pure. A value that is missing or has another type is skipped, since another version
// may have written the report.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/base/figure.hpp"

namespace ddprun {

using ReportJson = nlohmann::ordered_json;

// The value at that key; null if there is none.
const ReportJson& report_value(const ReportJson& object, const char* key);
std::string report_text(const ReportJson& value);  // the text; empty if the value is not a string
std::int64_t report_integer(const ReportJson& value, std::int64_t otherwise = 0);
double report_number(const ReportJson& value);
// Like report_text(), for the value at `key`.
inline std::string report_text_at(const ReportJson& object, const char* key) {
  return report_text(report_value(object, key));
}
inline std::int64_t report_integer_at(const ReportJson& object, const char* key, std::int64_t otherwise = 0) {
  return report_integer(report_value(object, key), otherwise);
}
inline double report_number_at(const ReportJson& object, const char* key) {
  return report_number(report_value(object, key));
}

// The metrics of an evaluation, in a report or in a line of metrics.jsonl: all its numbers, except the fields that every record
// has. A null stands for a value that was not a number when it was written.
FigureList evaluation_figures(const ReportJson& evaluation);

// "rank 3"; "the node" if no worker failed.
std::string whose_failure(const ReportJson& failure);

struct RoundSpan {
  const ReportJson* round = nullptr;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  bool failed = false;
};

struct ReportFigures {
  // Names and seconds in the order of the report, without parts that took no time.
  std::vector<std::pair<std::string, double>> time;
  // False if no worker has reported a step. Then the start of training and the amount of repeated work are unknown.
  bool knows_steps = false;
  double total_s = 0;
  double useful_s = 0;  // time of training and evaluations, without repeated steps
  double lost_s = 0;
  std::int64_t steps_lost = 0;
  std::int64_t failures = 0;
  std::vector<std::pair<std::string, std::int64_t>> causes;  // most frequent first
  // "rank 3 on b": ranks that failed first in a round, most frequent first
  std::vector<std::pair<std::string, std::int64_t>> ranks;
  std::vector<RoundSpan> rounds;  // in order; the entries point into the report
};

ReportFigures figures_of(const ReportJson& report);

// How the run ended, from the value of "exit".
std::string how_it_ended(const ReportJson& exit);

// The useful share of the accounted time: "93.1 %". Empty if no time was accounted or no step was reported.
std::string goodput_of(const ReportFigures& figures);

}  // namespace ddprun
